"""The calls of kernels in the generated function of a module: what they compute, the memory around them, hooks.

The comments of `torch_compat/inductor/annotations.py` are read here and leave the code.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotpack.archive.memory_plan import plan_memory, with_known_end
from aotpack.export.backends.backend import KernelCall, MemoryBlock
from aotpack.export.backends.cpp_text import blank_literals
from aotpack.export.torch_compat.inductor.annotations import MARK

_HANDLE = re.compile(r"^(\s*)AtenTensorHandle (\w+)_handle;$")
_KERNEL_CALL = re.compile(r"^\s*(?:AOTI_TORCH_ERROR_CODE_CHECK\()?(cpp_\w+|aoti_torch_cpu_\w+)\(")
_NOTE = re.compile(rf"[ \t]*{re.escape(MARK)}(.*)$")
_ALIAS = re.compile(r"^\s*(?:auto|RAIIAtenTensorHandle)&? (\w+)(?: = |\()(.*)$")
_NAME = re.compile(r"\b\w+\b")
_RESET = re.compile(r"\b(\w+)\.reset\(\);")
_MADE = re.compile(r"&(\w+)_handle\)")
_OUTPUT = re.compile(r"^\s*output_handles\[\d+\] = (\w+)\.release\(\);")


# The place of a residual among the arguments, of kernels that read it element by element before they write the result
# there: Call::empty of csrc/module/tensor.h.
_RESIDUALS = {"packed_conv": 3, "packed_linear": 3, "int8_conv": 4, "int8_linear": 4}


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
    memory = _Memory()
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
            memory.kernel(len(kernels) - 1)
            residual = _RESIDUALS.get(kernels[-1].name)
            if residual is not None:
                memory.add(line, residual)
        else:
            memory.follow(line)
        lines.append(line)
        handle = _HANDLE.match(line)
        if handle is not None:
            declared.setdefault(handle[2], []).append(len(lines) - 1)
        if open_hook and blank_literals(line).rstrip().endswith(";"):
            open_hook = False
            lines.append("AOTPACK_KERNEL_END")
    blocks = tuple(memory.blocks(len(kernels)))
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


class _Memory:
    """Which blocks are in use after each kernel. Names of tensors share a block where one is a view of the other, or
    the result of a kernel that adds the other, which is read there for the last time.

    Attributes:
        sharing: by the name of a block, those of the results that have its memory after it; once `blocks` has run.
    """

    def __init__(self) -> None:
        self.sharing: dict[str, list[str]] = {}
        self._added: list[tuple[int, int]] = []  # residuals and results
        self._blocks: list[list[int]] = []  # bytes, first kernel, last kernel; -1: to the end
        self._names: list[str] = []
        self._outputs: set[int] = set()
        self._held: dict[str, int] = {}
        self._next = 0

    def kernel(self, index: int) -> None:
        """A kernel is called."""
        self._next = index + 1

    def make(self, name: str, nbytes: int) -> None:
        """Memory for this tensor is allocated for the next kernel, or by it."""
        self._held[name] = len(self._blocks)
        self._names.append(name)
        self._blocks.append([nbytes, self._next, -1])

    def add(self, call: str, residual: int) -> None:
        """The last kernel's call, with the place of its residual. No other argument may lie there."""
        made = _MADE.search(call)
        block = None if made is None else self._held.get(made[1])
        arguments = _arguments(call)
        read = [{self._held[name] for name in _NAME.findall(each) if name in self._held} for each in arguments[:-1]]
        if block is None or residual >= len(read) or len(read[residual]) != 1:
            return
        (source,) = read[residual]
        if sum(source in each for each in read) == 1:
            self._added.append((source, block))

    def follow(self, line: str) -> None:
        """A line that calls no kernel: it names views, gives memory back, or returns it."""
        for name in _RESET.findall(line):
            self._drop(name)
        output = _OUTPUT.match(line)
        if output is not None and output[1] in self._held:
            self._outputs.add(self._held[output[1]])
        alias = _ALIAS.match(line)
        if alias is None or alias[1] in self._held:
            return
        source = next((name for name in _NAME.findall(alias[2]) if name in self._held), None)
        if source is not None:
            self._held[alias[1]] = self._held[source]
            if f"std::move({source})" in alias[2]:
                del self._held[source]

    def _drop(self, name: str) -> None:
        block = self._held.pop(name, None)
        if block is not None and block not in self._held.values():
            self._blocks[block][2] = self._next - 1

    def blocks(self, kernels: int) -> Iterator[MemoryBlock]:
        """All of them, in order. Those that no kernel uses are left out, and those that share the memory of another."""
        shared = self._share(kernels)
        for index, (name, (nbytes, first, last)) in enumerate(zip(self._names, self._blocks, strict=True)):
            if index in shared:
                continue
            last = kernels - 1 if last < 0 or index in self._outputs else last
            if nbytes > 0 and first <= last < kernels:
                yield MemoryBlock(name, nbytes, first, last, index in self._outputs)

    def _share(self, kernels: int) -> set[int]:
        """Has results take over the memory of residuals; returns these results."""
        names = Counter(self._names)
        heirs: set[int] = set()
        owner: dict[int, int] = {}
        for residual, result in self._added:
            root = owner.get(residual, residual)
            nbytes, _, last = self._blocks[root]
            size, first, end = self._blocks[result]
            fits = nbytes == size > 0 and last == first and first < end < kernels - 1
            alone = all(names[self._names[each]] == 1 and each not in self._outputs for each in (root, result))
            if fits and alone:
                self._blocks[root][2] = end
                self.sharing.setdefault(self._names[root], []).append(self._names[result])
                owner[result] = root
                heirs.add(result)
        return heirs


def _arguments(call: str) -> list[str]:
    """Of a call that ends its line, and may be in another one."""
    begin = call.index("(", call.index("aoti_torch_cpu_")) + 1
    parts, depth, current = [], 0, begin
    for at in range(begin, len(call)):
        character = call[at]
        depth += (character in "([{") - (character in ")]}")
        if depth < 0 or (character == "," and depth == 0):
            parts.append(call[current:at])
            current = at + 1
        if depth < 0:
            break
    return parts
