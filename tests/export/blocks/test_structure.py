"""What makes two pieces of a graph the same function of other tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from aotpack.export import aot_export
from aotpack.export.blocks.structure import Structure, structure_of
from tests.support.blocks import Block


def structure(module: nn.Module, *args: Any, dynamic: bool = False) -> Structure:
    shapes = ({0: "batch"},) if dynamic else None
    program = aot_export(module.eval(), args or (torch.randn(2, 8),), dynamic_shapes=shapes)
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    return structure_of(program, nodes, program.graph.output_node().args[0])


def test_equal_but_for_the_weights() -> None:
    one, other = structure(Block()), structure(Block())
    assert one.key == other.key
    assert one.constants == ("norm.weight", "norm.bias", "up.weight", "up.bias", "down.weight", "down.bias")
    assert [node.name for node in one.inputs] == ["x"]


def test_attributes_sizes_and_dtypes_tell_blocks_apart() -> None:
    same = structure(Block())
    assert structure(Block(eps=1e-3)).key != same.key
    assert structure(Block(), torch.randn(3, 8)).key != same.key
    assert structure(Block(), torch.randn(2, 8), dynamic=True).key != same.key
    assert structure(Block().double(), torch.randn(2, 8).double()).key != same.key
    assert structure(Block(16), torch.randn(2, 16)).key != same.key


def test_shared_weights_tell_blocks_apart() -> None:
    tied, views = Block(), Block()
    tied.norm.bias = tied.down.bias
    views.norm.bias = nn.Parameter(views.up.bias[:8])
    keys = {structure(block).key for block in (Block(), tied, views)}
    assert len(keys) == 3
