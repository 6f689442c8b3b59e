"""Brings calls into one form, the only one that later passes handle.

The form: what an operator's schema takes by position is given by position, keyword-only arguments by keyword, and what
equals the schema's default is left out where nothing behind it has to be given. Capture has made private writes
functional; the operators that still write, write to state, and stay.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, schema_of
from aotpack.export.torch_compat.operators import OpOverload


def canonicalize(program: Program) -> Program:
    """Arguments in the one form of their operator's schema; calls whose results are not read go, assertions stay."""
    rewriter = Rewriter(program)
    for node in rewriter.graph.nodes:
        if not isinstance(node.target, OpOverload):
            continue
        args, kwargs = _canonical(node)
        if len(args) != len(node.args) or kwargs.keys() != node.kwargs.keys():
            node.args, node.kwargs = args, kwargs
            rewriter.report(node, f"arguments of {node.target}")
            rewriter.changed += 1
    calls = list(rewriter.graph.nodes)
    rewriter.remove_dead_code()
    left = set(rewriter.graph.nodes)
    gone = [node for node in calls if node not in left]
    for node in gone:
        rewriter.report(node, f"removed {node.name}, which is unused")
    dead = len(gone)
    rewritten, rewriter.changed = rewriter.changed, rewriter.changed + dead
    return rewriter.finish(
        "canonicalize", f"rewrote the arguments of {rewritten} calls, removed {dead} without readers"
    )


def _canonical(node: torch.fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args: list[Any] = []
    required = 0
    kwargs: dict[str, Any] = {}
    for position, argument in enumerate(schema_of(node).arguments):
        if position < len(node.args):
            value, default = node.args[position], False
        elif argument.name in node.kwargs:
            value, default = node.kwargs[argument.name], False
        else:
            value, default = argument.default_value, True
        default = default or (argument.has_default_value() and _same(value, argument.default_value))
        if not argument.kwarg_only:
            args.append(value)
            required = required if default else len(args)
        elif not default:
            kwargs[argument.name] = value
    return tuple(args[:required]), kwargs


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, (list, tuple)) and isinstance(default, (list, tuple)):
        return len(value) == len(default) and all(map(_same, value, default))
    # True == 1 == 1.0, but an operator may tell them apart.
    return type(value) is type(default) and value == default
