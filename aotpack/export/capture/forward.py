"""Captures the forward of a module: its example call, its trace and the program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram

from aotpack.errors import CaptureError
from aotpack.export.capture.absent import FakeCall
from aotpack.export.ir import pytree_spec
from aotpack.export.ir.program import Program
from aotpack.export.ops.flex_attention import scores_apart
from aotpack.export.ops.recurrent import captured_whole
from aotpack.export.probing.probe import probed
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.torch_compat import pytree
from aotpack.export.tracing import eager, gradients, open_results
from aotpack.export.tracing.aliases import unify_aliases
from aotpack.export.tracing.functional import functional_graph
from aotpack.export.tracing.inner_constants import lift_inner_constants
from aotpack.export.tracing.interface import Call, Results, make_program
from aotpack.export.tracing.joint import portable_operators
from aotpack.export.tracing.over_functions import refuse_writes_from_inside
from aotpack.export.tracing.plain import returning_plain
from aotpack.export.tracing.shared_inputs import shared_inputs_named
from aotpack.export.tracing.sparse import refuse_sparse_values
from aotpack.export.tracing.state_analysis import analysed
from aotpack.export.tracing.trace import trace


def forward(
    module: torch.nn.Module,
    call: Call,
    dynamic_shapes: Any,
    name: str,
    model: object,
    fake: FakeCall | None = None,
) -> Program:
    """The program of a forward; `fake` makes the example call for a model whose weights are not in memory."""
    open_reasons: list[str] = []
    if fake is not None:
        module, outputs = returning_plain(module, fake.answer())
        held = analysed(model, module, fake.arguments, fake, fake.provenance)
    else:
        with open_results.watched() as open_reasons:
            module, outputs = _answered(module, call)
        held = analysed(model, module, call.leaves(), partial(eager.again, module, call.args, call.kwargs))
    traced = partial(_traced_forward, module, call, dynamic_shapes, name)
    values = fake is None
    if held is None:
        return traced(outputs, open_reasons, values=values)
    with held.installed(module):
        if fake is None:
            outputs = eager.run(module, call.args, call.kwargs)
        return held.named(traced(outputs, open_reasons, values=values))


def _traced_forward(
    module: torch.nn.Module,
    call: Call,
    dynamic_shapes: Any,
    name: str,
    outputs: Any,
    open_reasons: list[str],
    *,
    values: bool,
) -> Program:
    pytree_spec.register_dataclasses(outputs)
    # Whole recurrent layers and blocked attention have no backward.
    how = portable_operators() if gradients.takes_gradients(module) else _without_gradients()
    with torch.no_grad(), how:
        traced = trace(module, call, dynamic_shapes)
    program = forward_program(traced.exported, call, name, outputs)
    program = open_results.noted(replace(program, notes=(*traced.notes, *program.notes)), open_reasons)
    answer = partial(eager.leaves if values else eager.fake_leaves, module)
    return probed(program, call.in_order_of(traced.exported), answer, module, values=values)


@contextlib.contextmanager
def _without_gradients() -> Iterator[None]:
    """While active, models are traced with operators that have no gradients."""
    with captured_whole(), scores_apart():
        yield


def _answered(module: torch.nn.Module, call: Call) -> tuple[torch.nn.Module, Any]:
    """What the example call returns, and the module as it must be called: one that computes gradients, with these
    enabled.
    """
    with gradients.watched() as seen:
        try:
            outputs = eager.run(module, call.args, call.kwargs)
        except CaptureError:
            if not seen.any:
                raise
        if seen.any:
            module = gradients.with_gradients(module)
            outputs = eager.run(module, call.args, call.kwargs)
        return returning_plain(module, outputs)


def forward_program(exported: ExportedProgram, call: Call, name: str, outputs: Any) -> Program:
    refuse_sparse_values(exported)
    refuse_writes_from_inside(exported.graph_module)
    lift_inner_constants(exported)
    unify_aliases(exported)
    ordered = call.in_order_of(exported)
    shared = shared_inputs_named(exported, ordered)
    with shape_env.sizes_from_zero(), shape_env.lines_of_the_model(), shared:
        exported, graph_module = functional_graph(exported)
    results = Results(exported.call_spec.out_spec, pytree.tree_leaves(outputs), {})
    return make_program("forward", name, exported, graph_module, ordered, results)
