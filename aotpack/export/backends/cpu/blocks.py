"""The memory of values in a generated function: which blocks there are, and which kernels need them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from aotpack.export.backends.backend import MemoryBlock
from aotpack.export.backends.cpp_text import blank_literals

_ALIAS = re.compile(r"^\s*(?:auto|RAIIAtenTensorHandle)&? (\w+)(?: = |\()(.*)$")
_NAME = re.compile(r"\b\w+\b")
_BRACE = re.compile(r"[{}]")
_RESET = re.compile(r"\b(\w+)\.reset\(\);")
_MADE = re.compile(r"&(\w+)_handle\)")
_OUTPUT = re.compile(r"^\s*output_handles\[\d+\] = (\w+)\.release\(\);")
# Further tensors with the memory of one, that have no name yet.
_SHARES = re.compile(r"\baoti_torch_(?:assign_tensors|new_tensor_handle)")

# The place of a residual among the arguments, of kernels that read it element by element before they write the result
# there: Call::empty of csrc/module/tensor.h.
_RESIDUALS = {"packed_conv": 3, "packed_linear": 3, "int8_conv": 4, "int8_linear": 4}


@dataclass
class _Block:
    """The memory of a tensor.

    Attributes:
        name: of the tensor that it is allocated for.
        nbytes: its size.
        first, last: kernels; -1: to the end.
        scope: where it is allocated; a scope of the code is one number.
        names: of all tensors that lie in it.
        is_output: whether the function returns it.
        is_shared: whether there may be tensors of other names.
    """

    name: str
    nbytes: int
    first: int
    last: int
    scope: int
    names: set[str]
    is_output: bool = False
    is_shared: bool = False


@dataclass(frozen=True)
class _Sum:
    """A kernel's result, and the residual that it adds; `line` is the number of the line of its call."""

    residual: _Block
    result: _Block
    line: int


class Blocks:
    """Which blocks are in use after each kernel. Names of tensors share a block where one is a view of the other, or
    the result of a kernel that adds the other, which nothing reads or writes later.

    All lines of the function go through `kernel` or `follow`, in order.

    Attributes:
        sharing: by the name of a block, those of the results that have its memory after it; once `found` has run.
    """

    def __init__(self) -> None:
        self.sharing: dict[str, list[str]] = {}
        self._sums: list[_Sum] = []
        self._blocks: list[_Block] = []
        self._held: dict[str, _Block] = {}
        self._next = 0
        self._line = 0
        self._used: dict[str, int] = {}  # the last line with a name, but for those that give its memory back
        self._scopes, self._scope_count = [0], 0

    def make(self, name: str, nbytes: int) -> None:
        """Memory for this tensor is allocated for the next kernel, or by it."""
        block = _Block(name, nbytes, self._next, -1, self._scopes[-1], {name})
        self._held[name] = block
        self._blocks.append(block)

    def kernel(self, index: int, name: str, line: str) -> None:
        """A line calls a kernel."""
        self._next = index + 1
        self._read(line)
        if name in _RESIDUALS:
            self._add(line, _RESIDUALS[name])

    def follow(self, line: str) -> None:
        """A line that calls no kernel: it names views, gives memory back, or returns it."""
        self._read(line)
        self._name_view(line)
        output = _OUTPUT.match(line)
        if output is not None and output[1] in self._held:
            self._held[output[1]].is_output = True
        for name in _RESET.findall(line):
            self._drop(name)

    def found(self, kernels: int) -> Iterator[MemoryBlock]:
        """All of them, in order. Those that no kernel uses are left out, and those that share the memory of another."""
        shared = self._share(kernels)
        for block in self._blocks:
            if block.name in shared:
                continue
            last = kernels - 1 if block.last < 0 or block.is_output else block.last
            if block.nbytes > 0 and block.first <= last < kernels:
                yield MemoryBlock(block.name, block.nbytes, block.first, last, block.is_output)

    def _read(self, line: str) -> None:
        """What any line says: names that it uses, and where scopes begin and end."""
        self._line += 1
        code = blank_literals(line)
        shares = _SHARES.search(code) is not None
        for name in _NAME.findall(_RESET.sub("", code)):
            self._used[name] = self._line
            if shares and name in self._held:
                self._held[name].is_shared = True
        for brace in _BRACE.findall(code):
            if brace == "{":
                self._scope_count += 1
                self._scopes.append(self._scope_count)
            elif len(self._scopes) > 1:
                self._scopes.pop()

    def _name_view(self, line: str) -> None:
        alias = _ALIAS.match(line)
        if alias is None or alias[1] in self._held:
            return
        source = next((name for name in _NAME.findall(alias[2]) if name in self._held), None)
        if source is not None:
            block = self._held[alias[1]] = self._held[source]
            block.names.add(alias[1])
            if f"std::move({source})" in alias[2]:
                del self._held[source]

    def _drop(self, name: str) -> None:
        block = self._held.pop(name, None)
        if block is not None and all(other is not block for other in self._held.values()):
            block.last = self._next - 1

    def _add(self, call: str, place: int) -> None:
        """Notes a residual that no other argument shares the memory of."""
        made = _MADE.search(call)
        result = None if made is None else self._held.get(made[1])
        arguments = _arguments(call)[:-1]
        if result is None or place >= len(arguments):
            return
        read = [[self._held[name] for name in _NAME.findall(each) if name in self._held] for each in arguments]
        if len(read[place]) == 1 and sum(block is read[place][0] for each in read for block in each) == 1:
            self._sums.append(_Sum(read[place][0], result, self._line))

    def _share(self, kernels: int) -> set[str]:
        """Has results take over the memory of residuals; returns the names of these results."""
        names = Counter(block.name for block in self._blocks)
        heirs: set[str] = set()
        roots: dict[str, _Block] = {}
        for each in self._sums:
            residual, result = each.residual, each.result
            root = roots.get(residual.name, residual)
            fits = residual.nbytes == result.nbytes > 0 and root.last == result.first < result.last < kernels - 1
            # In a loop, what is allocated before it is read again.
            is_last = residual.scope == result.scope and not any(
                self._used[name] > each.line for name in residual.names
            )
            if (
                fits
                and is_last
                and all(
                    names[block.name] == 1 and not block.is_output and not block.is_shared
                    for block in (residual, result)
                )
            ):
                root.last = result.last
                self.sharing.setdefault(root.name, []).append(result.name)
                roots[result.name] = root
                heirs.add(result.name)
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
