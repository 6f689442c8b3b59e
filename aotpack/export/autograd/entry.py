"""A call and its gradients as one module, which capture traces as it does any model that computes gradients itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from aotpack.errors import CaptureError
from aotpack.export.autograd.gradients import output_gradient
from aotpack.export.diagnostics import model_lines
from aotpack.export.ir import pytree_spec
from aotpack.export.ir.program import get_attribute
from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.higher_order import functions_called
from aotpack.export.torch_compat.modules import put_over
from aotpack.export.tracing.autocast import no_autocast
from aotpack.export.tracing.python_state.nodes import STANDS_FOR
from aotpack.export.tracing.state import state_put_back
from aotpack.export.training.tied import Tied, in_place


@dataclass(frozen=True)
class Derivatives:
    """What the example call shows of the gradients of a model.

    Attributes:
        outputs: the leaves of the result that have a gradient.
        parameters: name of each parameter that requires grad → whether the outputs depend on it.
        inputs: whether they depend on a leaf of `(args, kwargs)`, for each tensor that requires grad.
    """

    outputs: tuple[int, ...]
    parameters: Mapping[str, bool]
    inputs: Mapping[int, bool]


@functions_called()
def derivatives(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Derivatives:
    """Runs the example call forward and backward; the model is as before afterwards.

    Raises:
        CaptureError: the call fails, or there are no gradients.
    """
    given = pytree.tree_map_only(
        Tensor, lambda t: t.detach().clone().requires_grad_(t.requires_grad), (tuple(args), dict(kwargs))
    )
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    leaves = pytree.tree_leaves(given)
    inputs = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad}
    if not parameters and not inputs:
        raise CaptureError(
            "there are no gradients to compute: no parameter of the model requires grad",
            hint="call model.requires_grad_(), or requires_grad_() on an example input",
        )
    # The random generator too: example calls that follow draw what they would have drawn.
    with torch.random.fork_rng(devices=[]), state_put_back(model), torch.enable_grad():
        try:
            result = model(*given[0], **given[1])
        except Exception as error:
            raise CaptureError(
                f"the example call itself fails: {type(error).__name__}: {error}{model_lines.at_line(error)}",
                hint="call the model with the example inputs to check them; a model that writes to an input cannot "
                "return the gradient of this input",
            ) from error
        pytree_spec.register_dataclasses(result)
        results = pytree.tree_leaves(result)
        outputs = {i: leaf for i, leaf in enumerate(results) if isinstance(leaf, Tensor) and leaf.requires_grad}
        if not outputs:
            raise CaptureError(
                "no output of the model depends on a tensor that requires grad",
                hint="look for detach() and torch.no_grad() in the model",
            )
        wanted = [*parameters.values(), *inputs.values()]
        with no_autocast():
            examples = [output_gradient(output.detach(), i) for i, output in outputs.items()]
            try:
                found = torch.autograd.grad(list(outputs.values()), wanted, examples, allow_unused=True)
            except RuntimeError as error:
                raise CaptureError(
                    f"the backward of the example call fails: {error}{model_lines.at_line(error)}",
                    hint="call backward() on the outputs to check the model",
                ) from error
    for name, gradient in zip(parameters, found, strict=False):
        if gradient is not None and gradient.layout != torch.strided:
            raise CaptureError(
                f"the gradient of {name!r} is sparse", hint="make the embedding with sparse=False: gradients are dense"
            )
    present = [gradient is not None for gradient in found]
    return Derivatives(
        tuple(outputs),
        dict(zip(parameters, present[: len(parameters)], strict=True)),
        dict(zip(inputs, present[len(parameters) :], strict=True)),
    )


class ForwardBackward(nn.Module):
    """Is captured instead of the model. Returns the outputs of the model and the gradients of its parameters and
    inputs, whose keys are names. The gradients of the outputs are results of `output_gradient`.
    """

    def __init__(
        self,
        model: nn.Module,
        found: Derivatives,
        names: Sequence[str],
        keywords: Sequence[str],
        leaf_names: Sequence[str],
        tied: Sequence[Tied],
    ) -> None:
        """`names`, `keywords`: the positional and keyword arguments of the model. `leaf_names`: of all their leaves."""
        super().__init__()
        # A trace sets parameters of this module; they are then those of the model.
        put_over(self, model)
        # Not a child, which would give each tensor a second name.
        self.__dict__[STANDS_FOR] = model
        self.__dict__["details_of_call"] = (found, tuple(keywords), tuple(leaf_names), tied)
        kinds = inspect.Parameter
        made = [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in names]
        made += [kinds(name, kinds.KEYWORD_ONLY) for name in keywords]
        call: Callable[..., Any] = self._called

        def forward(*args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        forward.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
        self.forward = forward

    def _called(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        model = self.__dict__[STANDS_FOR]
        found, keywords, leaf_names, tied = self.__dict__["details_of_call"]
        leaves, tree = pytree.tree_flatten((args, {key: kwargs[key] for key in keywords}))
        # Whatever history an argument has is not part of this call.
        leaves = [leaf.detach().requires_grad_() if i in found.inputs else leaf for i, leaf in enumerate(leaves)]
        passed, passed_kwargs = pytree.tree_unflatten(leaves, tree)
        names = [name for name, present in found.parameters.items() if present]
        inputs = [i for i, present in found.inputs.items() if present]
        wanted = [*(get_attribute(self, name) for name in names), *(leaves[i] for i in inputs)]
        with torch.enable_grad(), in_place({each: get_attribute(self, each.first) for each in tied}):
            outputs = model(*passed, **passed_kwargs)
        pytree_spec.register_dataclasses(outputs)
        results = pytree.tree_leaves(outputs)
        # An autocast around the capture is one of the forward alone.
        with no_autocast():
            gradients = [output_gradient(results[i].detach(), i) for i in found.outputs]
            computed = torch.autograd.grad([results[i] for i in found.outputs], wanted, gradients)
        own: dict[str | int, Tensor] = dict(zip([*names, *inputs], computed, strict=True))
        result = {"outputs": outputs, "gradients": {name: own.get(name) for name in found.parameters}}
        if found.inputs:
            result["input_gradients"] = {leaf_names[i]: own.get(i) for i in found.inputs}
        return result
