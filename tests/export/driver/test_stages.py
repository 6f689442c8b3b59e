"""Archives of several stages, beside eager and beside the archive of the whole program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.archive import read_manifest
from aotpack.archive.stages import run_in_order
from aotpack.errors import PartitionError
from aotpack.export import BuildOptions, Device, Part, Variants, aot_export, build_archive, build_stages, partition
from aotpack.runtime.packing import pack_weights
from tests.export.driver.stage_cases import CASES, B, Convs, Mlp, Sizes, Towers
from tests.support.building import assert_close
from tests.support.cuts import cut_into
from tests.support.declared import check_declared_sizes
from tests.support.safetensors import write_safetensors
from tests.support.staged_runs import check_staged_runs


def steps_of(path: Path) -> list[Any]:
    (entry,) = read_manifest(path).entries
    (implementation,) = entry.variants[0].implementations
    return list(implementation.steps)


@pytest.mark.parametrize("towers", [False, True], ids=["in a row", "towers"])
@pytest.mark.parametrize("name", CASES)
def test_stages_cut_anywhere(name: str, towers: bool, tmp_path: Path, cache_dir: Path) -> None:
    """At sizes of all declared ranges; values in memory as the manifest says, which the runtime checks."""
    torch.manual_seed(0)
    case = CASES[name]
    model, args = case.model().eval(), case.args()
    program = aot_export(model, args, dynamic_shapes=case.shapes or None)
    path = tmp_path / "stages.aotpack"
    cut = cut_into(4, seed=len(name) + towers, towers=towers)
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir), partitioning=cut)
    assert len(steps_of(path)) >= 2
    archive = aotpack.load(path, verify="full", num_threads=2)
    if case.shapes:
        check_declared_sizes(program, model, args, None, path, archive)
    fresh = case.model().eval()
    fresh.load_state_dict(model.state_dict())
    context = archive.context()
    for _ in range(3):
        given = case.args()
        mine, theirs = ([a.clone() if isinstance(a, Tensor) else a for a in given] for _ in range(2))
        with torch.no_grad():
            assert_close(context(*mine), fresh(*theirs))
        assert_close(mine, theirs)
    check_staged_runs(path, case.args)


def test_equal_to_the_whole_bit_for_bit(tmp_path: Path, cache_dir: Path) -> None:
    """Cut where kernels end anyway: behind matrix products."""
    torch.manual_seed(0)
    model, x = Mlp().eval(), torch.randn(4, 8)
    program = aot_export(model, (x,), dynamic_shapes={"x": {0: B}})
    devices = [Device("a", 1 << 20), Device("b", 1 << 20)]
    cut = partition(program, devices, "mapping", mapping={"net.0": "a", "net.1": "a", "net": "b"})
    assert [stage.device.name for stage in cut.stages] == ["a", "b"]
    whole, stages = tmp_path / "whole.aotpack", tmp_path / "stages.aotpack"
    options = BuildOptions(cache_dir=cache_dir)
    build_archive(program, whole, options=options)
    report = build_archive(program, stages, options=options, partitioning=cut)
    assert any(change.summary.startswith("stage 2: ") for change in report.passes["forward"]["default"])
    manifest = read_manifest(stages)
    assert manifest.devices == ("a", "b")
    assert [step.device for step in steps_of(stages)] == [0, 1]
    assert {constant.name for constant in manifest.constants} == {c.name for c in read_manifest(whole).constants}
    plan = build_stages(program, cut, tmp_path / "folder", options=options)
    assert [(each.memory_bytes, each.seconds) for each in plan.stages] == [
        (stage.bytes.total, stage.seconds) for stage in cut.stages
    ]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "stages.aotpack", "whole.aotpack"]
    runners = [aotpack.load(tmp_path / "folder" / each.archive).run for each in plan.stages]
    one, two = aotpack.load(whole), aotpack.load(stages)
    for batch in (1, 2, 7, 16):
        given = torch.randn(batch, 8)
        assert torch.equal(one(given), two(given))
        assert torch.equal(one(given), run_in_order(plan, runners, [given])[0])


def test_a_weight_of_two_stages_is_stored_once(tmp_path: Path, cache_dir: Path) -> None:
    model, args = Towers().eval(), CASES["towers"].args()
    program = aot_export(model, args)
    sizes = []
    for number, cut in enumerate((None, cut_into(6, seed=1))):
        path = tmp_path / f"{number}.aotpack"
        build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, without=("all",)), partitioning=cut)
        manifest = read_manifest(path)
        sizes.append({constant.sources: constant.nbytes for constant in manifest.constants})
        assert len({constant.sha256 for constant in manifest.constants}) == len(manifest.constants)
    assert sizes[0] == sizes[1]


def test_updatable_weights(tmp_path: Path, cache_dir: Path) -> None:
    model, x = Mlp().eval(), torch.randn(4, 8)
    path = tmp_path / "updatable.aotpack"
    options = BuildOptions(cache_dir=cache_dir, updatable=True)
    build_archive(aot_export(model, (x,)), path, options=options, partitioning=cut_into(3))
    archive = aotpack.load(path)
    other = Mlp().eval()
    archive.update_weights(other.state_dict())
    with torch.no_grad():
        assert_close(archive(x), other(x))


def test_weights_that_are_packed_later(tmp_path: Path, cache_dir: Path) -> None:
    model, x = Convs().eval(), torch.randn(2, 3, 8, 8)
    code, packed = tmp_path / "code.aotpack", tmp_path / "packed.aotpack"
    options = BuildOptions(cache_dir=cache_dir, code_only=True)
    build_archive(aot_export(model, (x,)), code, options=options, partitioning=cut_into(3, 1))
    arrays = {name: value.numpy() for name, value in model.state_dict().items()}
    pack_weights(code, write_safetensors(tmp_path / "w.safetensors", arrays), packed)
    with torch.no_grad():
        assert_close(aotpack.load(packed, verify="full")(x), model(x))


def test_what_inspect_shows(tmp_path: Path, cache_dir: Path) -> None:
    program = aot_export(Mlp().eval(), (torch.randn(4, 8),), dynamic_shapes={"x": {0: B}})
    devices = [Device("near", 1 << 20), Device("far", 1 << 20)]
    cut = partition(program, devices, "mapping", mapping={"net.0": "near", "": "far"})
    path = tmp_path / "shown.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir), partitioning=cut)
    shown = subprocess.run(
        [sys.executable, "-m", "aotpack.cli.app", "inspect", str(path)], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in shown.splitlines()]
    assert ["devices", "near,", "far"] in rows
    assert any(row[:2] == ["1", "near"] and row[-2:] == ["x", "linear"] for row in rows)
    assert any(row[:2] == ["2", "far"] and row[-2:] == ["linear", "output"] for row in rows)


def test_entries_and_variants(tmp_path: Path, cache_dir: Path) -> None:
    """A function partitions each; two entries share state, which lies on one device."""
    model = Mlp().eval()
    x = torch.randn(4, 8)
    seen = []
    cut = cut_into(2)

    def partitioner(program: Any) -> Any:
        seen.append(program.signature.name)
        return cut(program) if program.signature.name == "first" else None

    first = aot_export(model, (x,), dynamic_shapes={"x": {0: B}}, entry="first", variants=Variants([{"batch": 1}, {}]))
    second = aot_export(model, (x,), entry="second")
    path = tmp_path / "entries.aotpack"
    build_archive([first, second], path, options=BuildOptions(cache_dir=cache_dir), partitioning=partitioner)
    assert seen[-1] == "second"
    by_name = {entry.name: entry for entry in read_manifest(path).entries}
    assert all(len(i.steps) == 2 for v in by_name["first"].variants for i in v.implementations)
    assert all(len(i.steps) == 1 for v in by_name["second"].variants for i in v.implementations)
    archive = aotpack.load(path)
    for batch in (1, 4, 9):
        given = torch.randn(batch, 8)
        with torch.no_grad():
            assert_close(archive.entry("first")(given), model(given))


def test_a_partitioning_of_another_program(tmp_path: Path, cache_dir: Path) -> None:
    devices = [Device("a", 1 << 20)]
    first = aot_export(Mlp().eval(), (torch.randn(4, 8),))
    other = partition(aot_export(Convs().eval(), (torch.randn(2, 3, 8, 8),)), devices)
    with pytest.raises(PartitionError, match="not of the nodes of 'forward' after its passes"):
        build_archive(first, tmp_path / "x.aotpack", options=BuildOptions(cache_dir=cache_dir), partitioning=other)
    named = partition(aot_export(Mlp().eval(), (torch.randn(4, 8),), entry="other"), devices)
    with pytest.raises(PartitionError, match="of the entry 'other', which the archive does not have"):
        build_archive(first, tmp_path / "x.aotpack", options=BuildOptions(cache_dir=cache_dir), partitioning=named)


def test_functions_that_fail(tmp_path: Path, cache_dir: Path) -> None:
    program = aot_export(Mlp().eval(), (torch.randn(4, 8),))
    options = BuildOptions(cache_dir=cache_dir)
    with pytest.raises(PartitionError, match="returned a list"):
        build_archive(program, tmp_path / "x.aotpack", options=options, partitioning=lambda _: [])  # type: ignore
    with pytest.raises(ZeroDivisionError):
        build_archive(program, tmp_path / "x.aotpack", options=options, partitioning=lambda _: 1 / 0)  # type: ignore
    assert not list(tmp_path.iterdir())


def test_builds_are_reproducible(tmp_path: Path, cache_dir: Path) -> None:
    torch.manual_seed(0)
    model, args = Sizes().eval(), CASES["sizes"].args()
    data = []
    for number in range(2):
        program = aot_export(model, args, dynamic_shapes=CASES["sizes"].shapes)
        path = tmp_path / f"{number}.aotpack"
        build_archive(program, path, options=BuildOptions(cache_dir=cache_dir), partitioning=cut_into(3, 2))
        data.append(path.read_bytes())
    assert data[0] == data[1]


def test_no_stage_is_a_plain_archive(tmp_path: Path, cache_dir: Path) -> None:
    """A program of one stage is compiled as a whole, whatever its device."""
    program = aot_export(Mlp().eval(), (torch.randn(4, 8),))
    found = partition(program, [Device("only", 1 << 20)])
    path = tmp_path / "one.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir), partitioning=found)
    assert read_manifest(path).devices == ("main",)
    assert len(steps_of(path)) == 1


def test_views_and_layouts_between_stages(tmp_path: Path, cache_dir: Path) -> None:
    """What is no dense tensor in the program arrives dense: expanded, transposed and sliced values."""

    class Views(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = torch.sin(x)
            wide = y[:, None].expand(-1, 3, -1)
            part = y[:, 1::2]
            turned = y.t()
            return (wide + 1).reshape(-1), (part.t() @ turned.t()).view(-1)

    model, x = Views(), torch.randn(4, 8)
    program = aot_export(model, (x,), dynamic_shapes={"x": {0: B}})
    names = [n.name for n in program.graph.nodes if n.op == "call_function" and isinstance(n.meta.get("val"), Tensor)]
    views = [n.name for n in program.graph.nodes if "view" not in n.name and n.name in names[:6]]
    path = tmp_path / "views.aotpack"

    def cut(given: Any) -> Any:
        found = [n.name for n in given.graph.nodes if n.op == "call_function" and isinstance(n.meta.get("val"), Tensor)]
        first = [name for name in found if name in views]
        parts = [Part(tuple(first)), Part(tuple(name for name in found if name not in first))]
        return partition(given, [Device("a", 1 << 30), Device("b", 1 << 30)], "aot", partitions=parts, passes=False)

    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir), partitioning=cut)
    assert len(steps_of(path)) == 2
    archive = aotpack.load(path)
    for batch in (1, 5, 16):
        given = torch.randn(batch, 8)
        assert_close(archive(given), model(given))


def test_a_stage_that_only_writes_state(tmp_path: Path, cache_dir: Path) -> None:
    class Count(nn.Module):
        count: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(4, 4)
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            y = self.l(x)
            self.count += y.sum(0)
            return torch.relu(y)

    model, x = Count().eval(), torch.randn(3, 4)
    program = aot_export(model, (x,))
    writing = [n.name for n in program.graph.nodes if n.name.startswith(("sum", "add", "copy"))]
    mapping = {"": "a", **dict.fromkeys(writing, "b")}
    found = partition(program, [Device("a", 1 << 20), Device("b", 1 << 20)], "mapping", mapping=mapping)
    assert [stage.device.name for stage in found.stages] == ["a", "b"]
    path = tmp_path / "count.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir), partitioning=found)
    assert [len(step.outputs) for step in steps_of(path)] == [2, 0]
    context = aotpack.load(path).context()
    fresh = Count().eval()
    fresh.load_state_dict(model.state_dict())
    fresh.count.zero_()
    for _ in range(3):
        given = torch.randn(3, 4)
        with torch.no_grad():
            assert_close(context(given), fresh(given))
        assert_close(torch.as_tensor(context.state()["count"]), fresh.count)


class Shared(nn.Module):
    """Two methods over one state."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))

    def add(self, x: Tensor) -> Tensor:
        self.total += self.l(x).sum(0)
        return self.total * 1

    def read(self, x: Tensor) -> Tensor:
        return torch.cumsum(self.l(x), 0) + self.total


def test_state_of_two_entries_is_on_one_device(tmp_path: Path, cache_dir: Path) -> None:
    model, x = Shared().eval(), torch.randn(3, 4)
    programs = [aot_export(model, (x,), entry=name, method=name) for name in ("add", "read")]
    devices = [Device("a", 1 << 20), Device("b", 1 << 20)]

    def cut(program: Any, first: str, second: str) -> Any:
        mapping = {"l": first, "": second}
        return partition(program, devices, "mapping", mapping=mapping, passes=False)

    options = BuildOptions(cache_dir=cache_dir)
    path = tmp_path / "shared.aotpack"
    with pytest.raises(PartitionError, match="the state 'total' is on the device 'b' in add, but on 'a' in read"):
        build_archive(
            programs,
            path,
            options=options,
            partitioning=lambda p: cut(p, *("ab" if p.signature.name == "add" else "ba")),
        )
    build_archive(programs, path, options=options, partitioning=lambda p: cut(p, "a", "b"))
    context = aotpack.load(path).context()
    for name in ("add", "read", "add", "read"):
        given = torch.randn(3, 4)
        with torch.no_grad():
            assert_close(context.entry(name)(given), getattr(model, name)(given))


def test_several_targets_and_a_source_that_is_freed(tmp_path: Path, cache_dir: Path) -> None:
    model, x = Convs().eval(), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        expected = model(x)
    path = tmp_path / "targets.aotpack"
    options = BuildOptions(cache_dir=cache_dir, free_source=True)
    targets = ["x86-64-v3", "x86-64-v4"]
    build_archive(aot_export(model, (x,)), path, targets=targets, options=options, partitioning=cut_into(3, 1))
    (entry,) = read_manifest(path).entries
    assert [i.target for i in entry.variants[0].implementations] == targets
    assert [len(i.steps) for i in entry.variants[0].implementations] == [3, 3]
    assert_close(aotpack.load(path)(x), expected)


def test_random_numbers_differ_between_stages(tmp_path: Path, cache_dir: Path) -> None:
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x + torch.randn(64), x + torch.randn(64)

    program = aot_export(Noise(), (torch.zeros(64),))
    path = tmp_path / "noise.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir), partitioning=cut_into(2, 1))
    context = aotpack.load(path).context(seed=3)
    one, two = context(torch.zeros(64))
    assert not torch.equal(one, two)
    again = aotpack.load(path).context(seed=3)(torch.zeros(64))
    assert torch.equal(one, again[0])
    assert torch.equal(two, again[1])
