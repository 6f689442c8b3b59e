"""Blocks of memory in one arena."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from aotpack.archive.memory_plan import peak_bytes, plan_memory


@dataclass(frozen=True)
class Block:
    nbytes: int
    first: int
    last: int
    output: bool = False


def test_blocks_that_are_not_in_use_together_share_memory() -> None:
    blocks = [Block(100, 0, 1), Block(64, 1, 2), Block(100, 2, 3), Block(1, 3, 4), Block(500, 4, 4, output=True)]
    plan = plan_memory(blocks)
    assert plan.offsets == (0, 128, 0, 128, None)
    assert plan.nbytes == 192
    assert peak_bytes(blocks) == 576  # the last kernel: 64 and the output


def test_no_blocks() -> None:
    assert plan_memory([]).nbytes == 0
    assert plan_memory([Block(64, 0, 0, output=True)]).offsets == (None,)
    assert peak_bytes([]) == 0


@pytest.mark.parametrize("seed", range(30))
def test_blocks_in_use_together_do_not_overlap(seed: int) -> None:
    chance = random.Random(seed)
    blocks = []
    for _ in range(chance.randrange(1, 60)):
        first = chance.randrange(40)
        last = first + chance.choice([0, 0, 1, 1, 2, 5, 30])
        blocks.append(Block(chance.choice([1, 63, 64, 65, 4096, 10_000]), first, last, chance.random() < 0.1))
    plan = plan_memory(blocks)
    placed = [(block, at) for block, at in zip(blocks, plan.offsets, strict=True) if at is not None]
    assert [block.output for block, at in zip(blocks, plan.offsets, strict=True) if at is None] == [True] * (
        len(blocks) - len(placed)
    )
    for i, (block, at) in enumerate(placed):
        assert at % 64 == 0
        assert at + block.nbytes <= plan.nbytes
        for other, there in placed[:i]:
            if block.first <= other.last and other.first <= block.last:
                assert at + block.nbytes <= there or there + other.nbytes <= at
    inside = [block for block in blocks if not block.output]
    assert peak_bytes(inside) <= plan.nbytes <= sum(-(-block.nbytes // 64) * 64 for block in inside)
