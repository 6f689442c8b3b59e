"""Captures a forward and its backward as two entries, which share what the forward keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from aotpack.archive.halves import GRADIENTS, backward_name
from aotpack.errors import CaptureError
from aotpack.export.autograd.cut import cut
from aotpack.export.autograd.entry import ForwardBackward, derivatives
from aotpack.export.capture.training import shapes_by_name
from aotpack.export.ir import pytree_spec
from aotpack.export.ir.program import Program
from aotpack.export.training.tied import untied

MODE = "forward_backward"


def forward_backward(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    entry: str,
    memory_budget: float,
    capture: Callable[..., Program],
) -> Program:
    """The program of the forward, with that of the backward as its companion.

    Args:
        entry: the name of the forward. That of the backward follows from it.
        capture: `aot_export`.

    Raises:
        CaptureError: see `aot_export`.
    """
    if not isinstance(memory_budget, (int, float)) or not 0 <= memory_budget <= 1:
        raise CaptureError(f"memory_budget is {memory_budget!r}", hint="use a number from 0 to 1")
    if not isinstance(args, (tuple, list)):
        raise CaptureError("args must be a tuple of arguments", hint="use (x,) for one argument")
    names = [name or f"arg{i}" for i, name in enumerate(pytree_spec.positional_names(model.forward, len(args)))]
    if GRADIENTS in (*names, *kwargs):
        raise CaptureError(f"the model has an argument {GRADIENTS!r}, a name of the backward", hint="rename it")
    pytree_spec.register_dataclasses((args, kwargs))
    found = derivatives(model, args, kwargs)
    shapes = shapes_by_name(dynamic_shapes, [*names, *kwargs])
    if shapes:
        # Sizes of gradients are those of the outputs, as the trace finds.
        shapes[GRADIENTS] = tuple(dict.fromkeys(range(t.dim()), "auto") for t in found.outputs.values())
    leaf_names = pytree_spec.leaf_names(tuple(args), dict(kwargs), names)
    with untied(model) as tied:
        module = ForwardBackward(model, found, names, list(kwargs), leaf_names, tied)
        given = (*args, tuple(found.outputs.values()))
        program = capture(module, given, kwargs, entry=entry, dynamic_shapes=shapes or None)
    notes = tuple(note for note in program.notes if GRADIENTS not in note.subject)
    program = replace(program, name=type(model).__name__, notes=notes)
    aliases: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(name)
    own = dict(model.named_parameters())
    trained = {name: aliases[id(own[name])] for name, present in found.parameters.items() if present}
    return cut(program, found.outputs.keys(), trained, (entry, backward_name(entry)), memory_budget)
