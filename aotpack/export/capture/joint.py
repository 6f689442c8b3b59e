"""Captures a module that returns a loss, together with its backward."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from aotpack.errors import CaptureError
from aotpack.export.ir.program import Program
from aotpack.export.probing.probe import probed
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.torch_compat import pytree
from aotpack.export.tracing import eager, open_results
from aotpack.export.tracing.aliases import unify_aliases
from aotpack.export.tracing.inner_constants import lift_inner_constants
from aotpack.export.tracing.interface import Call, Results, make_program, memory_order
from aotpack.export.tracing.joint import joint_graph, portable_operators
from aotpack.export.tracing.over_functions import refuse_writes_from_inside
from aotpack.export.tracing.plain import returning_plain
from aotpack.export.tracing.shared_inputs import refuse_written_leaves, shared_inputs_named
from aotpack.export.tracing.sparse import refuse_sparse_values
from aotpack.export.tracing.state_analysis import analysed
from aotpack.export.tracing.trace import message, trace


def joint(module: torch.nn.Module, call: Call, dynamic_shapes: Any, name: str, model: object) -> Program:
    with open_results.watched() as open_reasons:
        answer = eager.run_joint(module, call.args, call.kwargs, call.same)
        plain, _ = returning_plain(module, answer.outputs)
        if plain is not module:
            module, answer = plain, eager.run_joint(plain, call.args, call.kwargs, call.same)
    again = partial(eager.again, module, call.args, call.kwargs, gradients=True)
    held = analysed(model, module, call.leaves(), again)
    if held is None:
        return _traced_joint(module, call, dynamic_shapes, name, answer, open_reasons)
    with held.installed(module):
        answer = eager.run_joint(module, call.args, call.kwargs, call.same)
        return held.named(_traced_joint(module, call, dynamic_shapes, name, answer, open_reasons))


def _traced_joint(
    module: torch.nn.Module,
    call: Call,
    dynamic_shapes: Any,
    name: str,
    answer: eager.JointAnswer,
    open_reasons: list[str],
) -> Program:
    with torch.enable_grad(), portable_operators():
        traced = trace(module, call, dynamic_shapes)
    exported = traced.exported
    refuse_sparse_values(exported)
    refuse_writes_from_inside(exported.graph_module)
    lift_inner_constants(exported)
    unify_aliases(exported)
    ordered = call.in_order_of(exported)
    names = call.leaf_names()
    known = dict(module.named_parameters())
    gradients: dict[str, dict[str, torch.Tensor | None]] = {"gradients": answer.parameters}
    if answer.inputs:
        gradients["input_gradients"] = {names[i]: gradient for i, gradient in answer.inputs.items()}
    parameters = _present(answer.parameters)
    inputs = _present(gradients.get("input_gradients", {}))
    positions = [ordered.leaf_names().index(key) for key in inputs]
    sources = [ordered.same.get(position, position) for position in positions]
    try:
        with (
            warnings.catch_warnings(),
            shape_env.sizes_from_zero(),
            shape_env.lines_of_the_model(),
            shared_inputs_named(exported, ordered),
        ):
            warnings.simplefilter("ignore")
            graph_module, numbers = joint_graph(exported, answer.loss, [known[key] for key in parameters], sources)
    except CaptureError:
        raise
    except Exception as error:
        refuse_written_leaves(exported, ordered, positions, error)
        raise CaptureError(
            f"AOTAutograd cannot trace the backward: {type(error).__name__}: {message(error)}",
            hint="look for an operator whose backward torch cannot trace, and replace it; "
            'mode="forward" captures the model without its backward',
        ) from error
    out_spec = exported.call_spec.out_spec
    outputs = pytree.tree_unflatten(pytree.tree_leaves(answer.outputs), out_spec)
    value = {"outputs": outputs, **gradients}
    _return_absent(graph_module, out_spec.num_leaves, pytree.tree_leaves(gradients))
    orders = {f"output.gradients.{key}": memory_order(known[key]) for key in parameters}
    results = Results(pytree.tree_structure(value), pytree.tree_leaves(value), orders, numbers)
    program = make_program("joint", name, exported, graph_module, ordered, results)
    program = open_results.noted(replace(program, notes=(*traced.notes, *program.notes)), open_reasons)
    return probed(program, ordered, partial(_joint_leaves, module, ordered.same), module, writes=False)


def _joint_leaves(
    module: torch.nn.Module, same: Mapping[int, int], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    answer = eager.run_joint(module, args, kwargs, same)
    inputs = [gradient for _, gradient in sorted(answer.inputs.items())]
    return [*pytree.tree_leaves(answer.outputs), *answer.parameters.values(), *inputs]


def _present(gradients: Mapping[str, torch.Tensor | None]) -> list[str]:
    return [key for key, gradient in gradients.items() if gradient is not None]


def _return_absent(graph_module: torch.fx.GraphModule, outputs: int, gradients: Sequence[torch.Tensor | None]) -> None:
    """Puts None among the results of the graph where eager has no gradient."""
    output = graph_module.graph.output_node()
    returned: Any = output.args[0]
    computed = iter(returned[outputs:])
    output.args = ((*returned[:outputs], *(None if g is None else next(computed) for g in gradients)),)
    graph_module.recompile()
