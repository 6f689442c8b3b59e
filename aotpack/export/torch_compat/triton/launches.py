"""Launches of Triton kernels, caught while a model is traced or run on the CPU.

`kernel[grid](...)` compiles the kernel for the GPU of the host. While a model is captured there may be none, and
tensors are on the CPU: a launch on fake tensors becomes a record, and one on tensors with values runs in Triton's
interpreter.

Private interfaces touched (triton 3.6 and 3.7, torch 2.11 to 2.13):
  triton.runtime.jit.JITFunction.{run, params, arg_names, signature}
  triton.runtime.autotuner.Autotuner.{run, fn, configs, arg_names, nargs, prune_configs}
  torch._higher_order_ops.triton_kernel_wrap.TraceableTritonKernelWrapper.{run, __call__, kernel, grid}
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from aotpack.errors import CaptureError
from aotpack.export.torch_compat.fake_tensors import FakeTensor
from aotpack.export.torch_compat.patches import always, applied, exclusive
from aotpack.export.torch_compat.triton.interpreter import interpret

# Arguments of a launch that are none of the kernel: how it is compiled.
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


@dataclass(frozen=True)
class Configuration:
    """One way to launch a kernel.

    Attributes:
        constants: values of its `tl.constexpr` parameters.
        options: those of `OPTIONS` that are set.
        grid: the number of blocks in each of three dims, of ints and SymInts.
    """

    constants: dict[str, Any]
    options: dict[str, Any]
    grid: tuple[Any, Any, Any]


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel.

    Attributes:
        kernel: the function with `triton.jit`.
        arguments: of its other parameters, by name: tensors, numbers and None.
        configurations: of an autotuned kernel several, of any other one.
        tuner: the autotuner; None where there is none.
    """

    kernel: Any
    arguments: dict[str, Any]
    configurations: tuple[Configuration, ...]
    tuner: Any = None


_Handler = Callable[[Launch], None]


@contextlib.contextmanager
def launches_caught(handler: _Handler) -> Iterator[None]:
    """While active, `handler` gets the launches of kernels on fake tensors, and those on tensors of the CPU are
    interpreted. Without Triton nothing is launched. Nested blocks change nothing.
    """
    if "triton" not in sys.modules or _Catching.active:
        yield
        return
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    catching = _Catching(handler, JITFunction.run, Autotuner.run)
    wrapper = "torch._higher_order_ops.triton_kernel_wrap:TraceableTritonKernelWrapper"
    replacements = {f"{wrapper}.run": always(_run), f"{wrapper}.__call__": always(_call)}
    with applied(replacements):
        _Catching.active = True
        JITFunction.run = lambda self, *args, **kwargs: catching.jit(self, args, kwargs)
        Autotuner.run = lambda self, *args, **kwargs: catching.autotuned(self, args, kwargs)
        try:
            yield
        finally:
            JITFunction.run, Autotuner.run = catching.run_jit, catching.run_autotuned
            _Catching.active = False


def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.kernel.run(*args, **{"warmup": False, **kwargs})


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.kernel.run(*args, grid=self.grid, warmup=False, **kwargs)


class _Catching:
    """What launches become."""

    active = False

    def __init__(self, handler: _Handler, run_jit: Any, run_autotuned: Any) -> None:
        self.handler = handler
        self.run_jit = run_jit
        self.run_autotuned = run_autotuned
        # Of an autotuned kernel that is being traced: its launches, one for each configuration.
        self._tried: list[Launch] | None = None

    def jit(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kind = _kind(args, kwargs)
        if kind is None or kwargs.get("warmup"):
            return self.run_jit(kernel, *args, **kwargs)
        launch = _launch_of(kernel, args, {k: v for k, v in kwargs.items() if k != "warmup"})
        if kind is torch.Tensor:
            interpreted(launch)
        elif self._tried is not None:
            self._tried.append(launch)
        else:
            self.handler(launch)
        return None

    def autotuned(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kind = _kind(args, kwargs)
        if kind is None or kwargs.get("warmup"):
            return self.run_autotuned(tuner, *args, **kwargs)
        # Any configuration computes the same.
        configs = _remaining(tuner, args, kwargs)[:1] if kind is torch.Tensor else tuner.configs
        for config in configs:
            if config.pre_hook is not None or getattr(tuner, "user_defined_pre_hook", False):
                raise CaptureError(
                    f"the Triton kernel {kernel_name(tuner)} has a pre_hook, which is Python code of each launch",
                    hint="launch the kernel without a pre_hook in triton.Config and triton.autotune",
                )
        if kind is torch.Tensor:
            return tuner.fn.run(*args, **kwargs, **configs[0].all_kwargs())
        outer, self._tried = self._tried, []
        try:
            for config in configs:
                tuner.fn.run(*args, **kwargs, **config.all_kwargs())
            launch = _merged(self._tried, tuner)
        finally:
            self._tried = outer
        if outer is not None:
            raise CaptureError(f"the Triton kernel {kernel_name(tuner)} has two autotuners", hint="use one")
        self.handler(launch)
        return None


def _remaining(tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The configurations that `prune_configs_by` leaves; all of them where it needs a GPU."""
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    with contextlib.suppress(Exception):
        given = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
        return list(tuner.prune_configs(given)) or list(tuner.configs)
    return list(tuner.configs)


def kernel_name(kernel: Any) -> str:
    """The name of the function under all decorators."""
    while not hasattr(kernel, "params") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return str(kernel.fn.__name__)


@exclusive
def interpreted(launch: Launch) -> None:
    """Runs a launch on tensors of the CPU, with its first configuration.

    Raises:
        CaptureError: the interpreter cannot run it, or it reads or writes beyond its tensors.
    """
    configuration = launch.configurations[0]
    grid = tuple(int(size) for size in configuration.grid)
    interpret(launch.kernel, grid, {**launch.arguments, **configuration.constants})


def _kind(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> type[torch.Tensor] | None:
    """FakeTensor if one is among the arguments, Tensor if all are on the CPU, and None otherwise."""
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    if any(isinstance(tensor, FakeTensor) for tensor in tensors):
        return FakeTensor
    return torch.Tensor if tensors and all(tensor.device.type == "cpu" for tensor in tensors) else None


def _launch_of(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launch:
    grid = kwargs.pop("grid")
    options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs and name not in kernel.arg_names}
    options = {name: _plain(value) for name, value in options.items() if value is not None}
    # Other options of compilers are taken by no parameter.
    kwargs = {name: value for name, value in kwargs.items() if name in kernel.arg_names}
    try:
        bound = kernel.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise CaptureError(f"the launch of the Triton kernel {kernel_name(kernel)} fails: {error}") from error
    bound.apply_defaults()
    values: dict[str, Any] = dict(bound.arguments)
    constexpr = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    constants = {name: _plain(value) for name, value in values.items() if name in constexpr}
    arguments = {name: _argument(kernel, name, value) for name, value in values.items() if name not in constexpr}
    sizes = tuple(grid({**arguments, **constants}) if callable(grid) else grid)
    if not 1 <= len(sizes) <= 3:
        raise CaptureError(f"the grid of the Triton kernel {kernel_name(kernel)} has {len(sizes)} dims, not 1 to 3")
    padded: Any = tuple(_plain_size(size) for size in (*sizes, 1, 1)[:3])
    return Launch(kernel, arguments, (Configuration(constants, options, padded),))


def _plain(value: Any) -> Any:
    """A constant; a size becomes a number, which the trace then requires."""
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, torch.SymFloat):
        return float(value)
    if isinstance(value, torch.SymBool):
        return bool(value)
    return getattr(value, "value", value) if type(value).__name__ == "constexpr" else value


def _plain_size(value: Any) -> Any:
    return value if isinstance(value, torch.SymInt) else int(_plain(value))


_ARGUMENTS = (torch.Tensor, torch.SymInt, torch.SymFloat, int, float, type(None))


def _argument(kernel: Any, name: str, value: Any) -> Any:
    value = bool(value) if isinstance(value, torch.SymBool) else value
    if not isinstance(value, _ARGUMENTS):
        raise CaptureError(
            f"the argument {name!r} of the Triton kernel {kernel_name(kernel)} is a {type(value).__name__}",
            hint="archives pass tensors, numbers and None to kernels; declare other parameters as tl.constexpr",
        )
    return value


def _merged(launches: list[Launch], tuner: Any) -> Launch:
    """The launches of one kernel with all of its configurations."""
    first = launches[0]
    configurations = tuple(launch.configurations[0] for launch in launches)
    return Launch(first.kernel, first.arguments, configurations, tuner)
