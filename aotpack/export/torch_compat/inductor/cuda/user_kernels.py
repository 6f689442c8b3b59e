"""The user's Triton kernels in code for CUDA devices.

A launch in a program is an operator (custom_ops/triton_launches.py). TorchInductor decomposes it into its own call of a
kernel, whose source it copies, with all configurations of an autotuned one; KernelCompiler chooses.

Private interfaces touched (torch 2.11 to 2.13):
  torch._higher_order_ops.triton_kernel_wrap.{triton_kernel_wrapper_functional, kernel_side_table}
  triton.runtime.autotuner.Autotuner.{prune_configs, nargs, configs}   triton 3.6 and 3.7
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from aotpack.errors import LoweringError
from aotpack.export.custom_ops.triton_launches import LaunchOperator, launch_operators
from aotpack.export.ir.rewriter import has_order
from aotpack.export.symbolic_shapes.hints import size_hint
from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patches import applied
from aotpack.export.torch_compat.triton.launches import Configuration, Launch, kernel_name


def launches_by_kernels() -> AbstractContextManager[None]:
    """While active, TorchInductor decomposes launches of the user's kernels into calls of these."""

    def selecting(original: Any) -> Any:
        @functools.wraps(original)
        def select() -> dict[Any, Any]:
            launches: dict[Any, Callable[..., Any]] = {
                operator: functools.partial(_launched, known) for operator, known in launch_operators().items()
            }
            return {**original(), **launches}

        return select

    return applied({places.SELECT_DECOMPOSITIONS: selecting})


def _launched(known: LaunchOperator, *operands: Any) -> Any:
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table, triton_kernel_wrapper_functional

    tensors = [_in_order(value, order) for value, order in zip(operands, known.orders, strict=False)]
    launch = known.bound([*tensors, *operands[len(tensors) :]])
    kept = _pruned(launch)
    constants, graphable = _divided(launch, kept)
    written = [known.tensors[place][0] for place in known.written]
    results = triton_kernel_wrapper_functional(
        kernel_idx=kernel_side_table.add_kernel(_autotuner(launch, kept)),
        constant_args_idx=kernel_side_table.add_constant_args(constants),
        grid=[configuration.grid for configuration in kept],
        tma_descriptor_metadata={},
        kwargs=graphable,
        tensors_to_clone=[name for place in known.written for name in known.tensors[place]],
    )
    found = [results[name] for name in written]
    return found[0] if len(found) == 1 else tuple(found)


def _in_order(value: Tensor, order: Sequence[int] | None) -> Tensor:
    """The tensor with its dims in the order that the kernel was launched with: its strides are among the numbers."""
    if order is None or has_order(value, order):
        return value
    back = [list(order).index(dim) for dim in range(len(order))]
    dense: Tensor = value.permute(tuple(order)).clone(memory_format=torch.contiguous_format)
    return dense.permute(back)


def _divided(launch: Launch, kept: Sequence[Configuration]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Constants that all configurations have, and what a graph holds."""
    shared = {
        name: value
        for name, value in kept[0].constants.items()
        if all(name in c.constants and _same(c.constants[name], value) for c in kept)
    }
    values = {**launch.arguments, **shared}
    graphable = {k: v for k, v in values.items() if isinstance(v, (Tensor, torch.SymInt, torch.SymFloat))}
    return {k: v for k, v in values.items() if k not in graphable}, graphable


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _autotuner(launch: Launch, kept: Sequence[Configuration]) -> Any:
    """The kernel with its configurations, as TorchInductor reads them."""
    from triton import Config, autotune

    constants, _ = _divided(launch, kept)
    configs = [Config({k: v for k, v in c.constants.items() if k not in constants}, **c.options) for c in kept]
    return autotune(configs=configs, key=[])(launch.kernel)


def _pruned(launch: Launch) -> Sequence[Configuration]:
    """The configurations that the user's `prune_configs_by` leaves, in its order: it finds the GPU of the target."""
    tuner = launch.tuner
    if tuner is None or (tuner.early_config_prune is None and tuner.perf_model is None):
        return launch.configurations
    by_config = {id(config): way for config, way in zip(tuner.configs, launch.configurations, strict=True)}
    values = {name: _hinted(value) for name, value in launch.arguments.items()}
    first = launch.configurations[0].constants
    chosen = {name for config in tuner.configs for name in config.kwargs}
    given = {name: value for name, value in first.items() if name not in chosen}
    try:
        tuner.nargs = values
        found = [by_config[id(config)] for config in tuner.prune_configs(given) if id(config) in by_config]
    except Exception as error:
        raise LoweringError(
            f"prune_configs_by of the Triton kernel {kernel_name(launch.kernel)} fails without a GPU: "
            f"{type(error).__name__}: {error}",
            hint="it is called with tensors without values, the example's sizes and the properties of the target",
        ) from error
    finally:
        tuner.nargs = None
    return found or launch.configurations


def _hinted(value: Any) -> Any:
    """An argument as functions of the user see it: sizes are those of the example."""
    if isinstance(value, torch.SymInt):
        return size_hint(value)
    if isinstance(value, Tensor):
        sizes, strides = map(size_hint, value.shape), map(size_hint, value.stride())
        return torch.empty_strided(tuple(sizes), tuple(strides), dtype=value.dtype, device="meta")
    return value
