"""Entries of a loss for several sets of inputs whose gradients are wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from aotpack.errors import CaptureError
from aotpack.export.ir import pytree_spec
from aotpack.export.ir.program import Program
from aotpack.export.torch_compat import pytree


def for_each_set(sets: Sequence[Sequence[str]], capture: Callable[[Sequence[str]], Program]) -> Program:
    """The program of the first set, with those of the others as companions.

    Args:
        sets: names of inputs.
        capture: captures the program that returns the gradients of these inputs.

    Raises:
        CaptureError: there is no set, two are equal, or a capture fails.
    """
    if isinstance(sets, str) or not isinstance(sets, Sequence) or not sets or any(isinstance(s, str) for s in sets):
        raise CaptureError(
            "input_gradients must be a list of sets of names of inputs", hint='use input_gradients=[("x", "y"), ("x",)]'
        )
    programs = [capture(names) for names in sets]
    entries = [program.signature.name for program in programs]
    for position, entry in enumerate(entries):
        if entry in entries[:position]:
            raise CaptureError(f"input_gradients has two sets for the entry {entry!r}", hint="remove one of them")
    return replace(programs[0], companions=tuple(programs[1:]))


def requiring(
    args: tuple[Any, ...], kwargs: dict[str, Any], names: Sequence[str | None], wanted: Sequence[str]
) -> tuple[tuple[Any, ...], dict[str, Any], str]:
    """The example call in which the inputs `wanted` require gradients, and no others; and their names in its order, as
    the name of the entry has them: `[x,y]`.

    Args:
        args, kwargs: the call; its tensors are changed.
        names: those of the positional arguments.
        wanted: names of inputs.

    Raises:
        CaptureError: a name is not that of a floating-point tensor of the call, or is there twice.
    """
    inputs = pytree_spec.leaf_names(args, kwargs, names)
    leaves = pytree.tree_leaves((args, kwargs))
    possible = [name for name, value in zip(inputs, leaves, strict=True) if _has_gradient(value)]
    for name in wanted:
        if name not in possible:
            raise CaptureError(
                f"the gradient of {name!r} is wanted, which is not a floating-point tensor of the example call",
                hint=f"those are {', '.join(possible)}" if possible else "it has none",
            )
    if len(set(wanted)) != len(wanted):
        raise CaptureError(f"input_gradients has an input twice: {', '.join(wanted)}", hint="name each input once")
    for name, value in zip(inputs, leaves, strict=True):
        if isinstance(value, torch.Tensor):
            value.requires_grad_(name in wanted)
    return args, kwargs, f"[{','.join(name for name in inputs if name in wanted)}]"


def _has_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
