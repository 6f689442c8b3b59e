"""Where the values of a module lie in one block of memory, the arena: planned by builds, shown by `aotpack inspect`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

# As the module ABI aligns memory.
_ALIGNMENT = 64


class Block(Protocol):
    """Memory of a value, in use from the kernel `first` to the kernel `last`. `output`: it is returned."""

    @property
    def nbytes(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def output(self) -> bool: ...


_Block = TypeVar("_Block", bound=Block)


@dataclass(frozen=True)
class MemoryPlan:
    """The offset in the arena of each block, None for outputs, which are memory of their own; the arena's bytes."""

    offsets: tuple[int | None, ...]
    nbytes: int


def with_known_end(blocks: Sequence[_Block]) -> list[_Block]:
    """Those that have a place in the arena, and outputs. What is in use to the end has perhaps no end that is known:
    without a place, its memory goes to others as soon as it is given back, as that of gradients does.
    """
    end = max((block.last for block in blocks), default=0)
    return [block for block in blocks if block.output or block.last < end]


def plan_memory(blocks: Sequence[Block]) -> MemoryPlan:
    """Blocks that are in use at the same time do not overlap.

    The greatest block comes first, each at the lowest offset where it fits ("greedy by size" of Pisarchyk and Lee,
    "Efficient Memory Management for Deep Neural Net Inference", 2020).
    """
    offsets: list[int | None] = [None] * len(blocks)
    placed: list[tuple[int, int, Block]] = []  # by offset: begin, end
    size = 0
    for index in sorted(range(len(blocks)), key=lambda i: (-blocks[i].nbytes, blocks[i].first, i)):
        block = blocks[index]
        if block.output:
            continue
        room = _aligned(block.nbytes)
        offset = 0
        for begin, end, other in placed:
            if other.last < block.first or block.last < other.first or end <= offset:
                continue
            if begin >= offset + room:
                break
            offset = end
        offsets[index] = offset
        placed.append((offset, offset + room, block))
        placed.sort(key=lambda item: item[:2])
        size = max(size, offset + room)
    return MemoryPlan(tuple(offsets), size)


def peak_bytes(blocks: Sequence[Block]) -> int:
    """The most bytes that the values of a module, outputs included, need at the same time."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + _aligned(block.nbytes)
        changes[block.last + 1] = changes.get(block.last + 1, 0) - _aligned(block.nbytes)
    live = peak = 0
    for kernel in sorted(changes):
        live += changes[kernel]
        peak = max(peak, live)
    return peak


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
