"""Captures a forward and its backward as two entries, which share what the forward keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from aotpack.archive.halves import backward_name
from aotpack.errors import CaptureError
from aotpack.export.autograd.cut import cut
from aotpack.export.autograd.entry import ForwardBackward, derivatives
from aotpack.export.ir import pytree_spec
from aotpack.export.ir.program import Program
from aotpack.export.training.tied import untied

MODE = "forward_backward"


def forward_backward(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    name: str,
    entry: str,
    memory_budget: float,
    capture: Callable[..., Program],
) -> Program:
    """The program of the forward, with that of the backward as its companion.

    Args:
        name: that of the model.
        entry: the name of the forward. That of the backward follows from it.
        capture: `aot_export`.

    Raises:
        CaptureError: see `aot_export`.
    """
    if not isinstance(memory_budget, (int, float)) or not 0 <= memory_budget <= 1:
        raise CaptureError(f"memory_budget is {memory_budget!r}", hint="use a number from 0 to 1")
    names = [name or f"arg{i}" for i, name in enumerate(pytree_spec.positional_names(model.forward, len(args)))]
    pytree_spec.register_dataclasses((args, kwargs))
    found = derivatives(model, args, kwargs)
    leaf_names = pytree_spec.leaf_names(tuple(args), dict(kwargs), names)
    with untied(model) as tied:
        module = ForwardBackward(model, found, names, list(kwargs), leaf_names, tied)
        program = capture(module, tuple(args), kwargs, entry=entry, dynamic_shapes=dynamic_shapes)
    program = replace(program, name=name)
    aliases: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(name)
    own = dict(model.named_parameters())
    trained = {name: aliases[id(own[name])] for name, present in found.parameters.items() if present}
    return cut(program, trained, (entry, backward_name(entry)), memory_budget)
