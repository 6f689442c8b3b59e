"""The example call, run by eager PyTorch: what it returns and, for a loss, the gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from aotpack.errors import AotpackError, CaptureError
from aotpack.export.custom_ops.python_kernels import Differentiated
from aotpack.export.diagnostics import model_lines
from aotpack.export.ir import pytree_spec
from aotpack.export.torch_compat import places, pytree
from aotpack.export.torch_compat.higher_order import functions_called
from aotpack.export.torch_compat.patches import always, applied
from aotpack.export.torch_compat.tensors import storage_id
from aotpack.export.tracing.half_convolutions import half_convolutions
from aotpack.export.tracing.plain import to_plain
from aotpack.export.tracing.reshaped import called_with_inputs_kept
from aotpack.export.tracing.state import objects_put_back, state_put_back
from aotpack.export.tracing.values import refuse_named_results

_META = (
    "it has no values: load the weights into the model (model.to_empty(device='cpu'), then load_state_dict), or name "
    'their file: aot_export(…, weights="model.safetensors"), `aotpack build --weights model.safetensors`'
)


def detached(value: Any) -> Any:
    """The value with its tensors cut from their history; whether they require a gradient stays."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        # Autograd refuses tensors that were made in inference mode; a copy outside of it is a normal one.
        free = tensor.detach().clone() if tensor.is_inference() else tensor.detach()
        return free.requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, cut, value)


def check_devices(module: torch.nn.Module, example: Any, *, without_values: bool = False) -> None:
    """Refuses models and inputs that are not on the CPU.

    `without_values`: tensors of the model may be on the meta device.

    Raises:
        CaptureError: a tensor is elsewhere.
    """
    inputs = [t for t in pytree.tree_leaves(example) if isinstance(t, torch.Tensor)]
    own = [t for t in (*module.parameters(), *module.buffers()) if not (without_values and t.is_meta)]
    for tensor in [*inputs, *own]:
        if tensor.device.type != "cpu":
            raise CaptureError(
                f"a tensor of the model or its example inputs is on {tensor.device}",
                hint=_META if tensor.is_meta else "move the model and the inputs to the CPU: model.cpu()",
            )


def check_initialized(module: torch.nn.Module) -> None:
    """Refuses lazy modules that were never called.

    Raises:
        CaptureError: a parameter or buffer has no shape yet.
    """
    tensors = [*module.named_parameters(), *module.named_buffers()]
    lazy = [name for name, tensor in tensors if is_lazy(tensor)]
    if lazy:
        raise CaptureError(
            f"the model has uninitialized lazy modules: {', '.join(map(repr, lazy[:5]))} has no shape yet",
            hint="call the model once before capture: the first call creates the parameters",
        )


@functions_called()
def run(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the module returns, without gradients; the module is as before afterwards.

    Raises:
        CaptureError: the call fails.
    """
    with state_put_back(module) as kept, torch.no_grad(), _fast(module, args, kwargs):
        outputs = _called(module, *_copied(args, kwargs))
        kept.refuse_resized()
        return _kept(module, outputs)


@functions_called()
def leaves(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of what the module returns, without gradients. It writes to its arguments, but stays as it was."""
    with state_put_back(module), torch.no_grad(), _fast(module, args, kwargs):
        return pytree.tree_leaves(module(*args, **kwargs))


@functions_called()
def fake_leaves(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The same over fake tensors, where the model's own tensors are neither read nor written to."""
    with objects_put_back(module), torch.no_grad():
        return pytree.tree_leaves(module(*args, **kwargs))


@functions_called()
def again(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, gradients: bool = False) -> Any:
    """What the module returns. It writes to copies of its arguments, and what it leaves in itself stays there."""
    with torch.set_grad_enabled(gradients), _fast(module, args, kwargs):
        args, kwargs = _copied(args, kwargs)
        return module(*args, **kwargs)


@dataclass(frozen=True)
class JointAnswer:
    """What eager answers to a call that returns a loss, and the loss's gradients.

    Attributes:
        outputs: what the module returned, detached.
        loss: which leaf of `outputs` is the loss.
        parameters: the gradient of each parameter that requires one, by the name that `named_parameters` gives it; None
            where the loss does not depend on it.
        inputs: the same for the leaves of the example call that require a gradient, by position.
    """

    outputs: Any
    loss: int
    parameters: dict[str, torch.Tensor | None]
    inputs: dict[int, torch.Tensor | None]


@functions_called()
def run_joint(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], same: Mapping[int, int] | None = None
) -> JointAnswer:
    """Runs the module forward and backward; the module, its `.grad` too, is as before afterwards.

    `same`: by leaf of the call, the one that the module reads in its place, whose gradient is that of both.

    Raises:
        CaptureError: the call fails, nothing requires a gradient, or no loss is returned.
    """
    with state_put_back(module) as state, torch.enable_grad(), _fast(module, args, kwargs):
        call = _copied(args, kwargs)
        flat = pytree.tree_leaves(call)
        inputs = {i: t for i, t in enumerate(flat) if isinstance(t, torch.Tensor) and t.requires_grad}
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        leaves = [*parameters.values(), *inputs.values()]
        if not leaves:
            raise CaptureError(
                "there are no gradients to compute: no parameter of the model requires grad",
                hint="call model.requires_grad_(), or requires_grad_() on an example input",
            )
        # An input that the model writes to must be no leaf; its gradient is that of the value that was passed in.
        fresh = {i: t.view_as(t) for i, t in inputs.items()}
        passed = pytree.tree_unflatten([fresh.get(i, t) for i, t in enumerate(flat)], pytree.tree_structure(call))
        with _single_backward(), _no_backward_of_its_own(), Differentiated():
            outputs = _called(module, *passed)
        state.refuse_resized()
        kept = _kept(module, outputs)
        position, loss = _loss(outputs)
        try:
            gradients = torch.autograd.grad(loss, leaves, torch.ones_like(loss), allow_unused=True)
        except RuntimeError as error:
            raise CaptureError(
                f"the backward of the example call fails: {error}{model_lines.at_line(error)}",
                hint="call loss.backward() to check the model",
            ) from error
    of_inputs = dict(zip(inputs, gradients[len(parameters) :], strict=True))
    return JointAnswer(
        pytree.tree_map_only(torch.Tensor, lambda t: t.detach(), kept),
        position,
        dict(zip(parameters, gradients[: len(parameters)], strict=True)),
        {leaf: of_inputs[(same or {}).get(leaf, leaf)] for leaf in of_inputs},
    )


def _loss(outputs: Any) -> tuple[int, torch.Tensor]:
    """The first tensor of what the model returned, and its position among the leaves."""
    leaves: Sequence[Any] = pytree.tree_leaves(outputs)
    hint = 'in mode="joint" the first tensor that the model returns is the loss, a tensor with one element'
    for position, value in enumerate(leaves):
        if not isinstance(value, torch.Tensor):
            continue
        if value.numel() != 1 or not value.is_floating_point():
            raise CaptureError(f"the loss is a tensor of shape {tuple(value.shape)} and {value.dtype}", hint=hint)
        if not value.requires_grad:
            raise CaptureError(
                "the loss does not depend on a tensor that requires grad",
                hint=f"look for detach() and torch.no_grad() in the model; {hint}",
            )
        return position, value
    raise CaptureError("the model does not return a tensor, so there is no loss", hint=hint)


def _fast(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> contextlib.AbstractContextManager[Any]:
    """What makes the call itself fast."""
    values = (*module.parameters(), *module.buffers(), *pytree.tree_leaves((args, kwargs)))
    return half_convolutions(value for value in values if isinstance(value, torch.Tensor))


def _copied(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copies of the arguments, which the model may write to."""
    copied: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map_only(
        torch.Tensor, lambda t: t.detach().clone().requires_grad_(t.requires_grad), (args, kwargs)
    )
    return copied


def _kept(module: torch.nn.Module, outputs: Any) -> Any:
    """The outputs, with copies of what lies in the module's own memory, which is about to be put back."""
    own = {storage_id(t) for t in (*module.parameters(), *module.buffers()) if t.layout == torch.strided}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        shared = tensor.layout == torch.strided and storage_id(tensor) in own
        return tensor.clone() if shared else tensor

    return pytree.tree_map_only(torch.Tensor, keep, outputs)


def _called(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = pytree_spec.leaf_names(args, kwargs, pytree_spec.positional_names(module.forward, len(args)))
    leaves = pytree.tree_leaves((args, kwargs))
    inputs = [(name, leaf) for name, leaf in zip(names, leaves, strict=True) if isinstance(leaf, torch.Tensor)]
    try:
        outputs = called_with_inputs_kept(lambda: module(*args, **kwargs), inputs)
    except AotpackError as error:
        line = model_lines.at_line(error)
        if line and "\n  at " not in str(error):
            error.args = (f"{error}{line}",)
        raise
    except SystemExit as error:
        raise CaptureError(
            f"the example call ends the process: the model calls exit({error.code!r}){model_lines.at_line(error)}",
            hint="raise an exception in the model instead of calling exit() or sys.exit()",
        ) from error
    except Exception as error:
        raise CaptureError(
            f"the example call itself fails: {type(error).__name__}: {error}{model_lines.at_line(error)}",
            hint="call the model with the example inputs to check them",
        ) from error
    pytree_spec.register_dataclasses(outputs)
    refuse_named_results(to_plain(outputs))
    return outputs


@contextlib.contextmanager
def _single_backward() -> Iterator[None]:
    """While active, a model that computes gradients itself is refused: its backward would be a second one."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise CaptureError(
            "double backward is not supported: the model computes gradients itself",
            hint="compute that gradient with a formula, or capture only the inner model",
        )

    with applied({places.RUN_BACKWARD: always(refuse)}):
        yield


@contextlib.contextmanager
def _no_backward_of_its_own() -> Iterator[None]:
    """While active, a `torch.autograd.Function` is refused: torch.export captures what its forward computes, and the
    gradients would be those of that, not the ones that its backward gives.
    """
    with applied({places.FUNCTION_APPLY: _refusing}):
        yield


def _refusing(bound: Any) -> Any:
    original: Any = bound.__func__

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        if not cls.__module__.startswith("torch."):
            raise CaptureError(
                f"{cls.__qualname__} is a torch.autograd.Function, whose backward torch.export does not capture",
                hint="define it as a custom operator: torch.library.custom_op with register_autograd",
            )
        return original(cls, *args, **kwargs)

    return classmethod(apply)
