"""State that the entries of an archive access through different tensors over one memory.

One entry writes to `row`, which another sees as a part of `whole`: in both it becomes a view of `whole`, since state is
one tensor in a context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.fx

from aotpack.errors import BuildError, CaptureError
from aotpack.export.ir.program import ConstantInfo, Program, identity
from aotpack.export.ir.rewriter import as_node, fake_mode
from aotpack.export.ir.storage import base_of, storage_key, view_arguments
from aotpack.export.torch_compat.fake_tensors import FakeTensorMode

aten = torch.ops.aten


@dataclass(frozen=True)
class _Base:
    """A tensor that others are views of, and its name where a program has none for it."""

    name: str
    tensor: torch.Tensor


def over_one_base(programs: Sequence[Program]) -> list[Program]:
    """The programs, in which all constants that share memory with state are views of one tensor.

    Raises:
        BuildError: tensors of different dtypes share the memory.
    """
    found: dict[int, dict[object, tuple[str, torch.Tensor]]] = {}
    written: set[int] = set()
    for program in programs:
        for attribute in program.constant_names():
            info, tensor = program.constant_info(attribute), program.original(attribute)
            key = storage_key(tensor)
            if key is not None and info.recipe is None:
                found.setdefault(key, {}).setdefault(identity(tensor), (attribute, tensor))
                if info.mutated:
                    written.add(key)
    bases = {key: _base(list(found[key].values())) for key in written if len(found[key]) > 1}
    return [_rebased(program, bases) for program in programs]


def _base(members: Sequence[tuple[str, torch.Tensor]]) -> _Base:
    try:
        base = base_of([tensor for _, tensor in members], [name for name, _ in members])
    except CaptureError as error:
        raise BuildError(str(error), hint=error.hint) from error
    own = [name for name, tensor in members if identity(tensor) == identity(base)]
    return _Base(own[0] if own else f"{members[0][0]}_memory", base)


def _rebased(program: Program, bases: Mapping[int, _Base]) -> Program:
    views: dict[str, _Base] = {}
    for attribute in program.constant_names():
        tensor = program.original(attribute)
        base = bases.get(storage_key(tensor) or 0)
        if base is not None and identity(tensor) != identity(base.tensor):
            views[attribute] = base
    if not views:
        return program
    graph_module = program.editable()
    mode = fake_mode(program.graph_module)
    constants: dict[str, ConstantInfo] = {}
    for attribute, base in views.items():
        target = _attribute_of(program, graph_module, base)
        constants[target] = ConstantInfo("buffer", (target,), mutated=True)
        for node in graph_module.graph.find_nodes(op="get_attr"):
            if node.target == attribute:
                _make_view(node, program.original(attribute), target, base.tensor, mode)
    graph_module.recompile()
    return program.with_graph(graph_module, constants)


def _attribute_of(program: Program, graph_module: torch.fx.GraphModule, base: _Base) -> str:
    """The attribute of the graph module that is the base; a new one where there is none yet."""
    for attribute in program.constant_names():
        if identity(program.original(attribute)) == identity(base.tensor):
            return attribute
    target = base.name.replace(".", "_")
    while getattr(graph_module, target, base.tensor) is not base.tensor:
        target += "_"
    graph_module.register_buffer(target, base.tensor, persistent=False)
    return target


def _make_view(
    node: torch.fx.Node, original: torch.Tensor, target: str, base: torch.Tensor, mode: FakeTensorMode
) -> None:
    """Replaces a constant by a view of the base, and a write to it by one to a part of that."""
    arguments = view_arguments(original, base)
    if arguments is None:
        raise ValueError(f"{node.target} is the base itself")
    graph = node.graph
    with mode, graph.inserting_before(node):
        held = graph.get_attr(target)
        held.meta["val"] = mode.from_tensor(base, static_shapes=True)
        view = graph.call_function(aten.as_strided.default, (held, *arguments))
        view.meta["val"] = aten.as_strided.default(held.meta["val"], *arguments)
    for write in [user for user in node.users if user.target is aten.copy_.default and user.args[0] is node]:
        value = as_node(write.args[1])
        with graph.inserting_before(write):
            whole = graph.call_function(aten.as_strided_scatter.default, (held, value, *arguments))
        whole.meta["val"] = write.meta["val"] = held.meta["val"]
        write.replace_all_uses_with(value)
        write.args = (held, whole)
    node.replace_all_uses_with(view)
    graph.erase_node(node)
