"""State that shares memory: buffers, parameters and other tensors of a model that are views of one another.

torch.export gives each of them a placeholder of its own, and AOTAutograd, which makes the graph functional, does not
accept that one of these is written to. So all that share memory become views of one placeholder, their base, as soon
as the graph may write to one of them. A write through one is then read through the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
import torch.fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from aotpack.export.ir.rewriter import fake_mode
from aotpack.export.ir.storage import base_of, storage_key, view_arguments
from aotpack.export.torch_compat.dispatch import has_kernel
from aotpack.export.torch_compat.export import set_input_specs
from aotpack.export.torch_compat.operators import HigherOrderOperator, OpOverload, operator_schema, written_arguments
from aotpack.export.tracing.functional import allocates

aten = torch.ops.aten

_KINDS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


@dataclass(frozen=True)
class _Member:
    """A tensor of the model that the graph reads or writes."""

    spec: InputSpec
    node: torch.fx.Node
    tensor: torch.Tensor

    @property
    def name(self) -> str:
        return str(self.spec.target)


def unify_aliases(exported: ExportedProgram) -> None:
    """Changes the program so that tensors of the model that share memory, and may be written to, are one.

    Raises:
        CaptureError: tensors of different dtypes share memory that is written to.
    """
    for members in _groups(exported):
        nodes = [member.node for member in members]
        if may_be_written(exported.graph, nodes):
            _unify(exported, members)


def _groups(exported: ExportedProgram) -> list[list[_Member]]:
    """The tensors that share memory, two or more each."""
    groups: dict[int, list[_Member]] = {}
    for spec, node in zip(
        exported.graph_signature.input_specs, exported.graph.find_nodes(op="placeholder"), strict=True
    ):
        if spec.kind not in _KINDS or spec.target is None:
            continue
        tensor = exported.state_dict.get(spec.target, exported.constants.get(spec.target))
        key = storage_key(tensor) if isinstance(tensor, torch.Tensor) and _has_storage(tensor) else None
        if key is not None:
            groups.setdefault(key, []).append(_Member(spec, node, tensor))
    return [members for members in groups.values() if len(members) > 1]


def _has_storage(tensor: torch.Tensor) -> bool:
    """Not so for sparse tensors and those of classes that wrap others."""
    return tensor.layout == torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)


# ---- what is written ------------------------------------------------------------------------------------------------


def may_be_written(graph: torch.fx.Graph, nodes: Collection[torch.fx.Node]) -> bool:
    """Whether the graph writes to the memory of these placeholders; True where that is not known."""
    reached = set(nodes)
    for node in graph.nodes:
        if not reached.intersection(node.all_input_nodes) or node.op != "call_function":
            continue
        if not isinstance(node.target, OpOverload):
            if isinstance(node.target, HigherOrderOperator):
                return True  # the graphs inside may write
            reached.add(node)
        elif any(w in reached for w in written_arguments(operator_schema(node.target), node.args, node.kwargs)):
            return True
        elif _may_alias(node.target):
            reached.add(node)
    return False


def _may_alias(op: OpOverload) -> bool:
    if any(result.alias_info is not None for result in operator_schema(op).returns):
        return True
    # Composite operators such as reshape may return a view.
    composite = has_kernel(op.name(), "CompositeImplicitAutograd")
    return bool(composite) and not allocates(op)


# ---- one base and views of it ---------------------------------------------------------------------------------------


def _unify(exported: ExportedProgram, members: Sequence[_Member]) -> None:
    # Where several are the same view, the one that the model has registered gives the name.
    registered = sorted(members, key=lambda member: _KINDS.index(member.spec.kind))
    base = base_of([member.tensor for member in registered], [member.name for member in registered])
    own = next((member for member in registered if view_arguments(member.tensor, base) is None), None)
    if own is None:
        own = _add_buffer(exported, registered[0], base)
    last = exported.graph.find_nodes(op="placeholder")[-1]
    gone: set[torch.fx.Node] = set()
    for member in members:
        if member.node is own.node:
            continue
        arguments = view_arguments(member.tensor, base)
        if arguments is None:
            member.node.replace_all_uses_with(own.node)
        elif member.node.users:
            with exported.graph.inserting_after(last):
                view = exported.graph.call_function(aten.as_strided.default, (own.node, *arguments))
            with fake_mode(exported.graph_module):
                view.meta["val"] = aten.as_strided.default(own.node.meta["val"], *arguments)
            member.node.replace_all_uses_with(view)
        gone.add(member.node)
    _remove(exported, gone)


def _add_buffer(exported: ExportedProgram, beside: _Member, value: torch.Tensor) -> _Member:
    """A placeholder for a buffer that the model does not have."""
    taken = {spec.target for spec in exported.graph_signature.input_specs}
    target = f"{beside.name}_memory"
    while target in taken:
        target += "_"
    with exported.graph.inserting_before(beside.node):
        node = exported.graph.placeholder(f"b_{target.replace('.', '_')}")
    node.target = node.name
    node.meta["val"] = fake_mode(exported.graph_module).from_tensor(value, static_shapes=True)
    spec = InputSpec(InputKind.BUFFER, TensorArgument(node.name), target, persistent=False)
    exported.constants[target] = value
    _change_inputs(exported, lambda specs: _inserted(specs, beside.spec, spec))
    return _Member(spec, node, value)


def _inserted(specs: Sequence[InputSpec], before: InputSpec, spec: InputSpec) -> list[InputSpec]:
    return [item for known in specs for item in ((spec, known) if known is before else (known,))]


def _remove(exported: ExportedProgram, gone: Collection[torch.fx.Node]) -> None:
    names = {node.name for node in gone}
    _change_inputs(
        exported, lambda specs: [spec for spec in specs if spec.kind not in _KINDS or spec.arg.name not in names]
    )
    for node in gone:
        exported.graph.erase_node(node)
    exported.graph_module.recompile()


def _change_inputs(exported: ExportedProgram, change: Callable[[Sequence[InputSpec]], list[InputSpec]]) -> None:
    set_input_specs(exported, change(exported.graph_signature.input_specs))
