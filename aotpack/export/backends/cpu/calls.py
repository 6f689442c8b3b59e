"""The calls of kernels in the generated function of a module: what they compute, the memory around them, hooks.

The comments of `torch_compat/inductor/annotations.py` are read here and leave the code.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotpack.archive.memory_plan import plan_memory, with_known_end
from aotpack.export.backends.backend import KernelCall, MemoryBlock
from aotpack.export.backends.cpp_text import blank_literals
from aotpack.export.backends.cpu.blocks import Blocks
from aotpack.export.torch_compat.inductor.annotations import MARK

_HANDLE = re.compile(r"^(\s*)AtenTensorHandle (\w+)_handle;$")
_KERNEL_CALL = re.compile(r"^\s*(?:AOTI_TORCH_ERROR_CODE_CHECK\()?(cpp_\w+|aoti_torch_cpu_\w+)\(")
_NOTE = re.compile(rf"[ \t]*{re.escape(MARK)}(.*)$")


@dataclass(frozen=True)
class Calls:
    """A generated function.

    Attributes:
        text: the code without comments about kernels.
        kernels: its kernels in the order of the code.
        blocks: the memory that it allocates for values, in the order of the code.
    """

    text: str
    kernels: tuple[KernelCall, ...]
    blocks: tuple[MemoryBlock, ...]


def read_calls(generated: str, run: str, *, hooks: bool = False, arena: bool = False) -> Calls:
    """The calls of kernels from `run`, the head of the function, to the end of the code.

    Args:
        generated: the code with comments.
        run: what the function begins with.
        arena: have values in the memory that is planned for them.
        hooks: put a hook around each call: AOTPACK_KERNEL(index) { … } of csrc/module/profile.h.
    """
    start = generated.index(run)
    lines: list[str] = []
    kernels: list[KernelCall] = []
    memory = Blocks()
    described: dict[str, Any] = {}
    open_hook = False
    declared: dict[str, list[int]] = {}
    for line in generated[start:].splitlines():
        found = _NOTE.search(line)
        if found is not None:
            said = json.loads(found[1])
            for name, nbytes in said.pop("makes", {}).items():
                memory.make(name, nbytes)
            described = said or described
            line = line[: found.start()]
            if not line.strip():
                continue
        call = _KERNEL_CALL.match(line)
        if call is not None:
            if hooks:
                indent = line[: len(line) - len(line.lstrip())]
                lines.append(f"{indent}AOTPACK_KERNEL({len(kernels)})")
                open_hook = True
            nodes = tuple((str(graph), str(name)) for graph, name in described.get("nodes", ()))
            operators = tuple(str(operator) for operator in described.get("operators", ()))
            kernels.append(KernelCall(call[1].removeprefix("aoti_torch_cpu_"), operators, nodes))
            described = {}
            memory.kernel(len(kernels) - 1, kernels[-1].name, line)
        else:
            memory.follow(line)
        lines.append(line)
        handle = _HANDLE.match(line)
        if handle is not None:
            declared.setdefault(handle[2], []).append(len(lines) - 1)
        if open_hook and blank_literals(line).rstrip().endswith(";"):
            open_hook = False
            lines.append("AOTPACK_KERNEL_END")
    blocks = tuple(memory.found(len(kernels)))
    if arena:
        _place(lines, blocks, declared, memory.sharing)
    return Calls(generated[:start] + "\n".join(lines) + "\n", tuple(kernels), blocks)


def _place(
    lines: list[str],
    blocks: Sequence[MemoryBlock],
    declared: Mapping[str, Sequence[int]],
    sharing: Mapping[str, Sequence[str]],
) -> None:
    """Has blocks come from the arena, at the offsets of the plan: Call::place in csrc/module/tensor.h.

    The module takes the memory only while nothing is there. So what is not known here costs memory, not results.
    `sharing` has the further names of a block.
    """
    names = Counter(block.name for block in blocks)
    ending = with_known_end(blocks)
    plan = plan_memory(ending)
    for block, offset in zip(ending, plan.offsets, strict=True):
        for name in (block.name, *sharing.get(block.name, ())):
            places = declared.get(name, ())
            # A name in several branches stands for several blocks.
            if offset is not None and names[block.name] == len(places) == 1:
                lines[places[0]] += f" AOTPACK_PLACE({offset}, {block.nbytes}, {plan.nbytes})"
