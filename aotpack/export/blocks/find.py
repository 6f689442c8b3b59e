"""Finds the blocks that a program repeats: calls of modules that compute the same with other weights.

Modules are looked at from the outside in, so that a whole layer is a block and not each of its parts. The order of a
program's stages follows: what lies between two blocks, a block, what lies behind it, and so on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.fx

from aotpack.export.blocks.structure import structure_of
from aotpack.export.ir.marks import marked_call
from aotpack.export.ir.program import Program
from aotpack.export.ir.regions import calls_graphs
from aotpack.export.ir.rewriter import as_node
from aotpack.export.partition.nodes import NodeRoles
from aotpack.export.torch_compat.operators import schema_or_none, written_arguments
from aotpack.export.tracing.interface import is_random_call

# A call of a module of fewer operators costs less to compile than to call.
_SMALLEST = 5

_COPY = torch.ops.aten.copy_.default


@dataclass(frozen=True)
class Block:
    """A call of a module that is repeated: its path in the model, and its computing nodes in order."""

    path: str
    nodes: tuple[torch.fx.Node, ...]


@dataclass(frozen=True)
class Refused:
    """A call of a module that could have been a block of the program, and why it is none."""

    path: str
    reason: str


@dataclass(frozen=True)
class Found:
    """The blocks of a program, in order, each with others that compute the same; modules that repeat, but are none."""

    blocks: tuple[Block, ...]
    refused: tuple[Refused, ...] = ()

    def stages(self, program: Program) -> dict[str, int]:
        """The stage of each computing node, by name: odd ones are blocks."""
        return {node.name: stage for node, stage in _stages(NodeRoles(program), self.blocks).items()}


def find_blocks(program: Program, *, modules: bool) -> Found:
    """The repeated blocks of a program: functions under `torch.compiler.nested_compile_region`, and `modules`."""
    if not modules and not any(map(marked_call, program.graph.nodes)):
        return Found(())
    roles = NodeRoles(program)
    if any(_writes(node) and node.target is not _COPY for node in program.graph.nodes):
        return Found((), (Refused("", "the program writes to tensors"),))
    blocks: list[Block] = []
    refused: list[Refused] = []
    computing = list(roles.computing())
    blocks += _marked(program, computing, refused)
    if modules:
        taken = {node for block in blocks for node in block.nodes}
        blocks += _repeated(program, [node for node in computing if node not in taken], refused)
    position = {node: index for index, node in enumerate(program.graph.nodes)}
    blocks.sort(key=lambda block: position[block.nodes[0]])
    return _in_order(roles, _with_writes(roles, blocks, refused), refused)


def _in_order(roles: NodeRoles, blocks: list[Block], refused: list[Refused]) -> Found:
    """The blocks without those that cannot run as a whole, one after the other."""
    together = list(roles.inseparable_values())
    while blocks:
        misplaced = _misplaced(roles, blocks, together)
        if misplaced is None:
            break
        refused.append(misplaced)
        blocks = [block for block in blocks if block.path != misplaced.path]
    return Found(tuple(blocks), tuple(refused))


def _with_writes(roles: NodeRoles, blocks: Sequence[Block], refused: list[Refused]) -> list[Block]:
    """The blocks with the writes to what they alone read; those that share it with other code are no blocks."""
    owner = {node: block for block in blocks for node in block.nodes}
    writes: dict[str, list[torch.fx.Node]] = {}
    shared: dict[str, Refused] = {}
    for users in roles.users_of_written():
        copies = [node for node in users if node.target is _COPY]
        readers = [node for node in users if node.target is not _COPY]
        values = [as_node(node.args[1]) for node in copies]
        owners = {owner.get(node) for node in (*readers, *values)}
        for block in owners:
            if block is None:
                continue
            if len(owners) == 1:
                writes.setdefault(block.path, []).extend(copies)
            else:
                reason = "it reads state that other code reads or writes too"
                shared[block.path] = Refused(block.path, reason)
    refused += shared.values()
    return [
        Block(block.path, tuple(dict.fromkeys((*block.nodes, *writes.get(block.path, ())))))
        for block in blocks
        if block.path not in shared
    ]


def _marked(program: Program, nodes: Sequence[torch.fx.Node], refused: list[Refused]) -> Iterator[Block]:
    """Calls of functions, under `torch.compiler.nested_compile_region`, that compute the same as others."""
    calls: dict[str, list[torch.fx.Node]] = {}
    for node in nodes:
        call = marked_call(node)
        if call is not None:
            calls.setdefault(call, []).append(node)
    labels = _labels(calls)
    yield from _alike(program, {labels[call]: own for call, own in calls.items()}, refused)


def _labels(calls: Mapping[str, Sequence[torch.fx.Node]]) -> dict[str, str]:
    """A name for each marked call: the function, and which call of it in this program."""
    numbers: Counter[str] = Counter()
    labels = {}
    for call in calls:
        function = call.rpartition("@")[0]
        numbers[function] += 1
        labels[call] = f"{function}@{numbers[function]}"
    return labels


def _repeated(program: Program, nodes: Sequence[torch.fx.Node], refused: list[Refused]) -> Iterator[Block]:
    """Calls of modules that compute the same as others."""
    depth, left = 1, list(nodes)
    while left:
        calls: dict[str, list[torch.fx.Node]] = {}
        paths: dict[str, tuple[str, str]] = {}
        for node in left:
            stack = list((node.meta.get("nn_module_stack") or {}).items())
            if len(stack) > depth:
                call, (path, kind) = stack[depth]
                calls.setdefault(call, []).append(node)
                paths[call] = (path, str(kind))
        if not calls:
            return
        taken: set[torch.fx.Node] = set()
        kinds = {call: (paths[call][1], len(own)) for call, own in calls.items()}
        for alike in _grouped(kinds):
            if len(calls[alike[0]]) < _SMALLEST:
                continue
            given = {_label(call, paths[call][0]): calls[call] for call in alike}
            for block in _alike(program, given, refused):
                yield block
                taken.update(block.nodes)
        left = [node for node in left if node not in taken and node.meta.get("nn_module_stack")]
        depth += 1


def _alike(program: Program, calls: Mapping[str, Sequence[torch.fx.Node]], refused: list[Refused]) -> Iterator[Block]:
    """The calls, by their names, that compute the same as others. Those that cannot be blocks are refused."""
    possible = {}
    for path, nodes in calls.items():
        reason = _obstacle(nodes)
        if reason is None:
            possible[path] = nodes
        elif len(calls) > 1 and not any(path.startswith(f"{each.path}.") for each in refused):
            refused.append(Refused(path, reason))
    for group in _grouped({path: structure_of(program, nodes).key for path, nodes in possible.items()}):
        yield from (Block(path, tuple(calls[path])) for path in group)


def _grouped(keys: Mapping[str, Hashable]) -> Iterator[list[str]]:
    """Names of equal key; only where there are several."""
    groups: dict[Hashable, list[str]] = {}
    for name, key in keys.items():
        groups.setdefault(key, []).append(name)
    return (group for group in groups.values() if len(group) > 1)


def _label(call: str, path: str) -> str:
    """The path of the module, with the number of the call where it is called again."""
    _, again, number = call.rpartition("@")
    return f"{path}@{number}" if again else path


def _obstacle(nodes: Sequence[torch.fx.Node]) -> str | None:
    """Why a call is not compiled by itself; None where it can be."""
    for node in nodes:
        if calls_graphs(node):
            return f"it calls {node.target.name()}"  # type: ignore[union-attr]
        if is_random_call(node):
            return f"{node.target} draws random numbers"
        if "conv" in str(node.target):
            return "layouts of convolutions are chosen over the whole program"
    return None


def _writes(node: torch.fx.Node) -> bool:
    schema = schema_or_none(node.target)
    return schema is not None and bool(written_arguments(schema, node.args, node.kwargs))


def _misplaced(
    roles: NodeRoles, blocks: Sequence[Block], together: Iterable[tuple[torch.fx.Node, torch.fx.Node]]
) -> Refused | None:
    """A block that cannot run after all that is before it, or between which and other code something cannot be handed
    over.
    """
    stages = _stages(roles, blocks)
    for number, block in enumerate(blocks):
        own = 2 * number + 1
        for node in block.nodes:
            if any(stages.get(source, own) > own for source in node.all_input_nodes):
                return Refused(block.path, "it needs results of code that runs after it")
    for one, other in ((stages[first], stages[second]) for first, second in together):
        if one != other:
            # Of two stages without a block the one between them is in the way.
            number = next((stage for stage in (one, other) if stage % 2), min(one, other) + 1) // 2
            return Refused(blocks[number].path, "values around it cannot be handed from stage to stage")
    return None


def _stages(roles: NodeRoles, blocks: Sequence[Block]) -> dict[torch.fx.Node, int]:
    """The stage of each computing node. The block of index i is stage 2 i + 1."""
    stages = {node: 2 * number + 1 for number, block in enumerate(blocks) for node in block.nodes}
    ends = {_last(block): number for number, block in enumerate(blocks)}
    finished: set[int] = set()
    complete = 0
    for node in roles.computing():
        if node in ends:
            finished.add(ends[node])
            while complete in finished:
                complete += 1
        if node in stages:
            continue
        # State is written where everything that reads it has run.
        stage = 2 * (len(blocks) if node.target is _COPY else complete)
        for source in node.all_input_nodes:
            before = stages.get(source, 0)
            stage = max(stage, before + before % 2)
        stages[node] = stage
    return stages


def _last(block: Block) -> torch.fx.Node:
    return next(node for node in reversed(block.nodes) if node.target is not _COPY)
