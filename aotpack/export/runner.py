"""Runs passes over a program, checks the contract after each, and names the pass that broke it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from aotpack.errors import BuildError, PassError
from aotpack.export.editing import fake_mode
from aotpack.export.program import Program

Pass = Callable[[Program], Program]


def run_passes(program: Program, passes: Sequence[Pass]) -> Program:
    """The program after all passes.

    Raises:
        PassError: a pass failed, or left a graph that breaks the contract of Program.
    """
    for step in passes:
        try:
            program = step(program)
            check(program)
        except BuildError:
            raise
        except Exception as error:
            raise PassError(f"pass {step.__name__} failed: {type(error).__name__}: {error}") from error
    return program


def check(program: Program) -> None:
    """Lints the graph and compares its interface with the signature."""
    program.graph.lint()
    placeholders = program.graph.find_nodes(op="placeholder")
    if len(placeholders) != len(program.signature.inputs):
        raise PassError(f"{len(placeholders)} placeholders, but {len(program.signature.inputs)} inputs in the signature")
    results = program.graph.output_node().args[0]
    if not isinstance(results, tuple) or len(results) != len(program.signature.outputs):
        raise PassError("the graph's results do not match the signature")


def propagate(program: Program) -> None:
    """Recomputes the fake tensors of all nodes, so that strides follow the operators that a pass put in."""
    mode = fake_mode(program.graph_module)
    values = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
    with torch.no_grad(), mode:
        # Parameters are real; the mode makes fakes of them on the way.
        allow, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
        try:
            FakeTensorProp(program.graph_module, mode).propagate_dont_convert_inputs(*values)
        finally:
            mode.allow_non_fake_inputs = allow
