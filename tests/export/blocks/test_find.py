"""Which calls of modules and functions are blocks of a program, and why others are none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from aotpack.export import aot_export
from aotpack.export.blocks.find import Found, find_blocks
from aotpack.export.weights.identity import share_state
from tests.support.blocks import Block, Counting, Stack


def found(model: nn.Module, x: Tensor | None = None, *, modules: bool = True) -> Found:
    (program,) = share_state([aot_export(model.eval(), (torch.randn(2, 4) if x is None else x,))])
    blocks = find_blocks(program, modules=modules)
    stages = blocks.stages(program)
    position = {node.name: node for node in program.graph.nodes}
    for name, stage in stages.items():
        assert all(stages.get(source.name, 0) <= stage for source in position[name].all_input_nodes)
    return blocks


def paths(blocks: Found) -> list[str]:
    return [block.path for block in blocks.blocks]


def test_outermost_modules_that_repeat() -> None:
    blocks = [nn.Sequential(Block(), Block()) for _ in range(3)]
    assert paths(found(Stack(blocks))) == ["blocks.0", "blocks.1", "blocks.2"]


def test_modules_of_other_attributes_are_looked_into() -> None:
    different = [nn.Sequential(Block(), Block(eps=1e-3)), nn.Sequential(Block(), Block(eps=1e-2))]
    assert paths(found(Stack(different))) == ["blocks.0.0", "blocks.1.0"]


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.block(x))


def test_calls_of_one_module_are_blocks() -> None:
    assert paths(found(Twice(), torch.randn(2, 8))) == ["block", "block@1"]


def test_small_modules_are_none() -> None:
    assert found(Stack([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4)])) == Found(())


def test_nothing_is_found_unmarked() -> None:
    assert found(Stack([Block(), Block()]), modules=False) == Found(())


def test_state_of_a_block_is_written_in_it() -> None:
    blocks = found(Stack([Counting(), Counting()]))
    assert paths(blocks) == ["blocks.0", "blocks.1"]
    assert all(block.nodes[-1].target is torch.ops.aten.copy_.default for block in blocks.blocks)


def refused(model: nn.Module, x: Tensor | None = None) -> dict[str, str]:
    blocks = found(model, x)
    assert not blocks.blocks
    return {each.path: each.reason for each in blocks.refused}


class Shared(nn.Module):
    """Blocks that read one counter."""

    step: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.zeros(()))
        self.blocks = nn.ModuleList([Reading(self.step) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        self.step.add_(1)
        return x


class Reading(Block):
    step: Tensor

    def __init__(self, step: Tensor) -> None:
        super().__init__()
        self.register_buffer("step", step)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.step)


def test_shared_state_keeps_blocks_in_place() -> None:
    reason = "it reads state that other code reads or writes too"
    assert refused(Shared(), torch.randn(2, 8)) == {"blocks.0": reason, "blocks.1": reason}


class Written(nn.Module):
    """Blocks that read an input which the call writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks[1](self.blocks[0](x))
        x.add_(1)
        return y


def test_inputs_that_are_written_keep_a_block_in_place() -> None:
    blocks = found(Written(), torch.randn(2, 8))
    assert [each.path for each in blocks.refused] == ["blocks.0"]


class Noisy(Block):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + torch.rand_like(x))


class Branching(Block):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))


def conv_stack() -> nn.Module:
    blocks = [nn.Sequential(*[nn.Conv2d(3, 3, 1), nn.ReLU()] * 3) for _ in range(2)]
    return nn.Sequential(*blocks)


def test_reasons() -> None:
    reasons: list[tuple[Any, Any, str]] = [
        (Stack([Noisy(), Noisy()]), None, "aten.rand_like.default draws random numbers"),
        (Stack([Branching(), Branching()]), None, "it calls cond"),
        (conv_stack(), torch.randn(1, 3, 4, 4), "layouts of convolutions are chosen over the whole program"),
    ]
    for model, x, reason in reasons:
        assert set(refused(model, x).values()) == {reason}


class Interleaved(nn.Module):
    """The second block needs what is computed after the first one has begun and before it ends."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Around(), Around()])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, lambda y: y.cumsum(0))
        return x


class Around(Block):
    def forward(self, x: Tensor, between: Any) -> Tensor:  # type: ignore[override]
        return super().forward(between(x).relu())


def test_functions_that_are_passed_in_belong_to_the_block() -> None:
    assert paths(found(Interleaved(), torch.randn(2, 8))) == ["blocks.0", "blocks.1"]
