"""Regions: blocks that are compiled once and called with other weights, beside eager and the archive without them."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack import Dim
from aotpack.archive import ArchiveReader, read_manifest
from aotpack.archive.description import read_description
from aotpack.errors import BuildError
from aotpack.export import BuildOptions, Program, aot_export, build_archive, load_exported, rewrite_pattern
from aotpack.runtime.packing import pack_folder, pack_weights, unpack
from tests.support.blocks import Block, Counting, Stack
from tests.support.building import assert_close
from tests.support.declared import check_declared_sizes
from tests.support.safetensors import write_safetensors

BATCH = {"x": {0: Dim("batch", 1, 16)}}


def modules_of(path: Path) -> list[int]:
    """The file of the code of each step."""
    entry = read_manifest(path).entries[0]
    (implementation,) = entry.variants[0].implementations
    return [step.module.file for step in implementation.steps]


def built(program: Program, path: Path, cache_dir: Path, **options: Any) -> Any:
    return build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, **options))


def mixed() -> Stack:
    """Five blocks with two attributes; the last is the first one."""
    first, *others = [Block(eps=1e-3 if i % 2 else 1e-5) for i in range(4)]
    return Stack([first, *others, first]).eval()


@pytest.fixture(scope="module")
def updatable(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> tuple[Stack, Program, Path, Any]:
    """A model of blocks that repeat, and an updatable archive of it."""
    torch.manual_seed(0)
    model = mixed()
    program = aot_export(model, (torch.randn(3, 4),), dynamic_shapes=BATCH)
    path = tmp_path_factory.mktemp("regions") / "model.aotpack"
    return model, program, path, built(program, path, cache_dir, regions="auto", updatable=True, sources=True)


def test_each_distinct_block_is_compiled_once(updatable: tuple[Stack, Program, Path, Any]) -> None:
    model, program, path, report = updatable
    before, a, b, *others, last, after = modules_of(path)
    assert others == [a, b] and last == a
    assert len({before, a, b, after}) == 4
    (regions,) = (each for each in report.passes["forward"]["default"] if each.name == "regions")
    assert regions.summary == "compiled 2 blocks for 5 calls"
    assert {(change.layer, change.note) for change in regions.changes} == {
        ("blocks.2", "runs the code of blocks.0"),
        ("blocks.3", "runs the code of blocks.1"),
        ("blocks.4", "runs the code of blocks.0"),
    }
    check_declared_sizes(program, model, (torch.randn(3, 4),), None, path, aotpack.load(path, verify="full"))


def test_constants_have_the_names_of_their_own_block(updatable: tuple[Stack, Program, Path, Any]) -> None:
    constants = {constant.name: constant.sources for constant in read_manifest(updatable[2]).constants}
    for number in (1, 2, 3, 4):
        assert constants[f"_packed_blocks_{number}_up_weight"] == (f"blocks.{number}.up.weight",)
    # The first block is the last one.
    assert not any("blocks_0" in name or "blocks.0" in name for name in constants)


def test_kernels_are_described_by_the_nodes_of_their_own_block(updatable: tuple[Stack, Program, Path, Any]) -> None:
    with ArchiveReader(updatable[2]) as reader:
        description = read_description(reader)
    assert description is not None
    variant = description["forward"]["default"]
    (steps,) = variant.targets.values()
    for number, step in enumerate(steps):
        modules = [[variant.nodes[index].module for index in kernel] for kernel in step.kernels]
        where = ["embed", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "blocks.4", "head"][number]
        assert modules and all(any(name.startswith(where) for name in names) for names in modules), (number, modules)
    assert {node.stage for node in variant.nodes if node.module == "blocks.2.up"} == {3}


def test_a_folder_and_back(updatable: tuple[Stack, Program, Path, Any], tmp_path: Path) -> None:
    """Steps that share code share its sources."""
    unpacked = unpack(updatable[2], tmp_path / "folder")
    assert len(unpacked.modules) == 5  # with that of the weights
    pack_folder(tmp_path / "folder", tmp_path / "again.aotpack")
    assert (tmp_path / "again.aotpack").read_bytes() == updatable[2].read_bytes()


def test_passes_of_the_user(tmp_path: Path, cache_dir: Path) -> None:
    """They run over each block that is compiled."""

    @rewrite_pattern(torch.ops.aten.gelu)
    def write_out(x: Tensor) -> Tensor:
        return x * (1 + torch.erf(x * 0.5**0.5)) / 2

    unused = rewrite_pattern(torch.ops.aten.sin, name="no-sin")(torch.cos)
    model, x = Stack([Block(), Block()]).eval(), torch.randn(2, 4)
    options = BuildOptions(cache_dir=cache_dir, regions="auto")
    with pytest.warns(UserWarning, match="no-sin matches nothing") as warned:
        report = build_archive(
            aot_export(model, (x,)), tmp_path / "t.aotpack", passes=[write_out, unused], options=options
        )
    assert not any("write-out" in str(each.message) for each in warned)
    changed = [each for each in report.passes["forward"]["default"] if each.name == "write-out" and each.changes]
    assert {change.layer for each in changed for change in each.changes} == {"blocks.0"}
    assert_close(aotpack.load(tmp_path / "t.aotpack")(x), model(x).detach())


def test_the_same_bits_as_without(updatable: tuple[Stack, Program, Path, Any], tmp_path: Path, cache_dir: Path) -> None:
    program, path = updatable[1:3]
    built(program, tmp_path / "off.aotpack", cache_dir, regions="off")
    assert len(modules_of(tmp_path / "off.aotpack")) == 1
    with_regions, without = aotpack.load(path), aotpack.load(tmp_path / "off.aotpack")
    for batch in (1, 2, 7, 16):
        x = torch.randn(batch, 4)
        assert torch.equal(with_regions(x), without(x))


def test_weights_are_replaced(updatable: tuple[Stack, Program, Path, Any]) -> None:
    archive, other, x = aotpack.load(updatable[2]), mixed(), torch.randn(5, 4)
    archive.update_weights(other.state_dict())
    with torch.no_grad():
        assert_close(archive(x), other(x))
        other.blocks[2].up.weight.mul_(3)
        archive.update_weights({"blocks.2.up.weight": other.blocks[2].up.weight.numpy()}, partial=True)
        assert_close(archive(x), other(x))


def test_weights_that_are_packed_later(tmp_path: Path, cache_dir: Path) -> None:
    model, x = Stack([Block(), Block()]).eval(), torch.randn(2, 4)
    code, packed = tmp_path / "code.aotpack", tmp_path / "packed.aotpack"
    built(aot_export(model, (x,)), code, cache_dir, regions="auto", code_only=True)
    arrays = {name: value.numpy() for name, value in model.state_dict().items()}
    pack_weights(code, write_safetensors(tmp_path / "w.safetensors", arrays), packed)
    with torch.no_grad():
        assert_close(aotpack.load(packed, verify="full")(x), model(x))


class Stateful(nn.Module):
    """Blocks, every second one with state of its own; state that is read and written between them, through a view too;
    an input that is written to.
    """

    count: Tensor
    history: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Counting() if i % 2 else Block() for i in range(4)])
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("history", torch.zeros(4, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        h, view = x.tanh() + self.count, self.history[1:3]
        for i, block in enumerate(self.blocks):
            h = block(h)
            if i == 1:
                self.count.add_(1)
                h = h + self.history.sum(0)
            if i == 2:
                self.history[1:3].add_(h)
        x.mul_(0.5)
        return h + view.sum(0), self.count + 0, x * 2, view * 1


def test_state(tmp_path: Path, cache_dir: Path) -> None:
    """In every context; blocks with state of their own share code too."""
    model = Stateful().eval()
    built(aot_export(model, (torch.randn(2, 8),)), tmp_path / "state.aotpack", cache_dir, regions="auto")
    files = modules_of(tmp_path / "state.aotpack")
    assert files.count(files[1]) == files.count(files[2]) == 2
    archive = aotpack.load(tmp_path / "state.aotpack")
    for context in (archive.context(), archive.context()):
        fresh = copy.deepcopy(model)
        for _ in range(3):
            mine = torch.randn(2, 8)
            theirs = mine.clone()
            with torch.no_grad():
                assert_close(context(mine), fresh(theirs))
            assert_close(mine, theirs)
        assert_close(torch.from_dlpack(context.state()["blocks.1.seen"]), fresh.blocks[1].seen)


class Marked(nn.Module):
    """Small functions that are marked: each call returns two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        total = x
        for layer in self.layers:
            x, squares = step(x, layer.weight, layer.bias)
            total = total + squares
        return total


@torch.compiler.nested_compile_region
def step(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    y = nn.functional.linear(x, weight, bias).relu()
    return y, y * y


def test_marked_functions(tmp_path: Path, cache_dir: Path) -> None:
    """Without an option: who marks a function wants it compiled once."""
    model, x = Marked().eval(), torch.randn(3, 8)
    program = aot_export(model, (x,), dynamic_shapes=BATCH)
    path = tmp_path / "marked.aotpack"
    report = built(program, path, cache_dir)
    assert report.passes["forward"]["default"][0].summary == "compiled 2 blocks for 3 calls"
    check_declared_sizes(program, model, (x,), None, path, aotpack.load(path))
    shown = subprocess.run(
        [sys.executable, "-m", "aotpack.cli.app", "inspect", str(path)], capture_output=True, text=True, check=True
    ).stdout
    # The sums in between are alike too.
    assert "3 modules run in 6 steps" in shown


def test_marked_functions_in_files(tmp_path: Path, cache_dir: Path) -> None:
    """What Dynamo makes of them: `invoke_subgraph`, but of the first call."""
    model, x = Modules().eval(), torch.randn(3, 8)
    exported = torch.export.export(model, (x,), strict=True, dynamic_shapes={"x": {0: torch.export.Dim("n", min=2)}})
    called = [node for node in exported.graph.nodes if node.target is torch.ops.higher_order.invoke_subgraph]
    assert len(called) == 3
    torch.export.save(exported, tmp_path / "model.pt2")
    built(load_exported(tmp_path / "model.pt2"), tmp_path / "model.aotpack", cache_dir)
    files = modules_of(tmp_path / "model.aotpack")
    assert len(files) == 4 and len(set(files)) == 1
    archive = aotpack.load(tmp_path / "model.aotpack")
    for batch in (2, 5):
        given = torch.randn(batch, 8)
        with torch.no_grad():
            assert_close(archive(given), model(given))


class Modules(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Layer(Block):
    @torch.compiler.nested_compile_region
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


def test_an_unknown_kind(tmp_path: Path, cache_dir: Path) -> None:
    program = aot_export(nn.ReLU(), (torch.randn(2),))
    with pytest.raises(BuildError, match="regions is 'all'"):
        built(program, tmp_path / "never.aotpack", cache_dir, regions="all")
