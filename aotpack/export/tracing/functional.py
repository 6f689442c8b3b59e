"""A flat, functional graph of an exported program: parameters as `get_attr`, mutations as `copy_` at the end.

torch.export keeps in-place operators as they were written. One that overwrites a value without other readers becomes
its functional form here; if any other is left, the whole program is functionalized by torch, at the price of a second
trace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

import torch
import torch.fx
from torch.export import ExportedProgram

from aotpack.errors import CaptureError
from aotpack.export.custom_ops.inlining import custom_operators_inlined, is_inlined
from aotpack.export.diagnostics import model_lines
from aotpack.export.ir.regions import all_nodes
from aotpack.export.ir.rewriter import bound_arguments
from aotpack.export.symbolic_shapes.shape_env import lines_of_the_model, sizes_from_zero
from aotpack.export.symbolic_shapes.symbolic_math import sym_functions_allowed
from aotpack.export.torch_compat.older_torch import captures_mended
from aotpack.export.torch_compat.operators import OpOverload, operator_schema, overload_name
from aotpack.export.tracing.nested_regions import inline_nested_regions
from aotpack.export.tracing.quiet import torch_quiet

# Blocks under `torch.autocast` and `torch.no_grad`, which the trace keeps as graphs of their own. The second trace has
# their casts in place.
_REGIONS = (torch.ops.higher_order.wrap_with_autocast, torch.ops.higher_order.wrap_with_set_grad_enabled)

_DROPOUT = tuple(
    getattr(torch.ops.aten, name).default
    for name in ("dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_")
)


@captures_mended()
def functional_graph(exported: ExportedProgram) -> tuple[ExportedProgram, torch.fx.GraphModule]:
    """The program (possibly functionalized) and its flat graph.

    Raises:
        CaptureError: torch.export produced something else than a graph module.
    """
    graph_module = _flat(exported)
    inline_nested_regions(graph_module)
    _refuse_unseen_writes(graph_module)
    _drop_idle_dropout(graph_module)
    _replace_private_writes(graph_module)
    if any(map(_needs_second_trace, all_nodes(graph_module))):
        with (
            custom_operators_inlined(),
            torch_quiet(),
            sizes_from_zero(),
            lines_of_the_model(),
            sym_functions_allowed(),
            _guards_not_run(exported),
        ):
            exported = exported.run_decompositions({})
        graph_module = _flat(exported)
        inline_nested_regions(graph_module)
    return exported, graph_module


def _refuse_unseen_writes(graph_module: torch.fx.GraphModule) -> None:
    """Of an instance norm torch does not say that it writes to its running statistics. aot_export overrides it; what
    torch.export has captured by itself has it still.

    Raises:
        CaptureError: there is one.
    """
    for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.instance_norm.default):
        if node.args[3] is not None and node.args[5]:
            line = model_lines.of_trace(node.meta.get("stack_trace") or "")
            where = "" if line is None else f"\n  at {line.full}"
            raise CaptureError(
                f"an instance norm in training mode keeps running statistics, which torch.export does not "
                f"record{where}",
                hint="call eval() before the export, or capture the module itself with aot_export",
            )


@contextlib.contextmanager
def _guards_not_run(exported: ExportedProgram) -> Iterator[None]:
    """While active, the second trace leaves out what the first one has assumed.

    The shape environment knows it already. torch states it as Python code, in which `or`, `max` and `min` of sizes
    decide by the sizes of the example: each decision would narrow the sizes further.
    """
    exported.module = partial(exported.module, check_guards=False)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del exported.module


def _flat(exported: ExportedProgram) -> torch.fx.GraphModule:
    graph_module = exported.module(check_guards=False)
    if not isinstance(graph_module, torch.fx.GraphModule):
        raise CaptureError(f"torch.export produced a {type(graph_module).__name__}, expected a graph module")
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.op == "call_module" and node.target == "_guards_fn":
            graph.erase_node(node)
    for node in graph.nodes:
        # torch puts the writes of mutated state in without a value; a model may return what it has written.
        if node.target is torch.ops.aten.copy_.default and "val" not in node.meta:
            node.meta["val"] = node.args[0].meta["val"]
    graph.set_codegen(torch.fx.graph.CodeGen())
    graph_module.recompile()
    return graph_module


def _writes(node: torch.fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and operator_schema(node.target).is_mutable


def _needs_second_trace(node: torch.fx.Node) -> bool:
    # Calls of custom operators are left in programs that torch.export has captured by itself.
    return _writes(node) or node.target in _REGIONS or _opens_subclass(node) or is_inlined(node.target)


def _opens_subclass(node: torch.fx.Node) -> bool:
    """Whether it takes a tensor out of one of a class of its own, as torchao's quantized weights are. The second trace
    has these tensors as parameters, and no others.
    """
    return str(node.target).startswith("export.access_subclass_inner_tensor")


def _drop_idle_dropout(graph_module: torch.fx.GraphModule) -> None:
    """Outside of training, dropout in place writes nothing and returns its input, whatever else is a view of that."""
    for target in _DROPOUT:
        for node in graph_module.graph.find_nodes(op="call_function", target=target):
            arguments = bound_arguments(node)
            if arguments["train"] is False:
                node.replace_all_uses_with(arguments["self"])
                graph_module.graph.erase_node(node)


def _replace_private_writes(graph_module: torch.fx.GraphModule) -> None:
    for node in graph_module.graph.nodes:
        if not _writes(node):
            continue
        functional = _functional_form(node.target)
        source = node.args[0] if node.args else None
        if functional is not None and _is_private(source):
            node.target = functional
    graph_module.recompile()


def _functional_form(op: OpOverload) -> OpOverload | None:
    """`aten.relu` for `aten.relu_`: the same arguments, none of them written."""
    namespace, _, name = operator_schema(op).name.partition("::")
    if not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None)
    form = getattr(packet, overload_name(op), None)
    if (
        form is None
        or operator_schema(form).is_mutable
        or len(operator_schema(form).arguments) != len(operator_schema(op).arguments)
    ):
        return None
    return form  # type: ignore[no-any-return]


def _is_private(source: object) -> bool:
    """Whether a value is read by one call alone and is memory of its own."""
    if not isinstance(source, torch.fx.Node) or source.op != "call_function" or len(source.users) != 1:
        return False
    if not isinstance(source.target, OpOverload):
        return False
    # A view shares memory with its source; composite operators such as reshape may return one.
    returns_alias = any(result.alias_info is not None for result in operator_schema(source.target).returns)
    return not returns_alias and source.target.namespace == "aten" and allocates(source.target)


_ALLOCATING = frozenset(
    name
    for base in (
        "conv1d",
        "conv2d",
        "conv3d",
        "linear",
        "batch_norm",
        "add",
        "sub",
        "mul",
        "div",
        "layer_norm",
        "matmul",
    )
    for name in (f"aten::{base}", f"aten::{base}_")
)


def allocates(op: OpOverload) -> bool:
    return operator_schema(op).name in _ALLOCATING
