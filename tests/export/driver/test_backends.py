"""Several backends in one archive: weights are stored once where these agree on a layout, and once for each where not.

There is one backend by now, so a second one is made here: CPUs without packed weights, for one of the CPU targets.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.archive import Manifest
from aotpack.errors import BuildError
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.backends.backend import LoweredConstant, LoweredModule
from aotpack.export.backends.cpu.backend import CpuBackend
from aotpack.export.driver import backends
from aotpack.export.ir.program import ConstantInfo, Program
from aotpack.export.ir.units import units_of
from aotpack.export.passes.cpu.pipeline import CPU
from aotpack.export.passes.runner import Pass
from aotpack.export.weights.constant_table import ConstantTable
from aotpack.export.weights.identity import Identities
from aotpack.targets import BY_NAME, Target
from tests.support.building import assert_close, manifest_of

pytestmark = pytest.mark.torch

TARGETS = ("x86-64-v3", "x86-64-v4")


class Plain(CpuBackend):
    """Leaves the weights of linears as they are."""

    name = "plain"

    @property
    def passes(self) -> tuple[Pass, ...]:
        return tuple(step for step in CPU if step.name != "pack-linear")


class Model(nn.Module):
    """A linear, whose weight the backends lay out in two ways, and a table that both read as it is; a state."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 64)
        self.norm = nn.LayerNorm(64)
        self.linear = nn.Linear(64, 48)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, index: Tensor) -> tuple[Tensor, Tensor]:
        self.count += 1
        return self.linear(self.norm(self.table(index))), self.count.clone()


@pytest.fixture(params=TARGETS)
def plain_target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The target of the second backend."""
    target: str = request.param
    monkeypatch.setitem(BY_NAME, target, dataclasses.replace(BY_NAME[target], backend="plain"))
    monkeypatch.setattr(backends, "BACKENDS", (CpuBackend(), Plain()))
    return target


def roles(manifest: Manifest, target: str) -> dict[str, tuple[str, ...]]:
    """What the module of `forward` for a target reads: by tensor of the model, the roles of its constants."""
    entry = manifest.entry("forward")
    assert entry is not None
    (module,) = (module for module in entry.variants[0].modules if module.target == target)
    read = [manifest.constants[index] for index in module.constants]
    names = sorted({source for constant in read for source in constant.sources})
    return {name: tuple(sorted(c.role for c in read if name in c.sources)) for name in names}


@pytest.mark.parametrize("updatable", [False, True])
def test_weights_are_stored_once_per_layout(
    tmp_path: Path, cache_dir: Path, plain_target: str, updatable: bool, check_answers: Callable[..., None]
) -> None:
    model = Model()
    index = torch.randint(0, 10, (3,))
    program = aot_export(copy.deepcopy(model), (index,), dynamic_shapes={"index": {0: aotpack.Dim("n", 1, 9)}})
    path = tmp_path / "model.aotpack"
    build_archive(program, path, targets=list(TARGETS), options=BuildOptions(cache_dir=cache_dir, updatable=updatable))
    manifest = manifest_of(path)
    packed_target = next(target for target in TARGETS if target != plain_target)
    assert roles(manifest, packed_target)["linear.weight"] == ("packed",)
    assert roles(manifest, plain_target)["linear.weight"] == ("parameter",)
    for name in ("table.weight", "norm.weight", "count"):
        stored = [constant for constant in manifest.constants if name in constant.sources]
        assert len(stored) == 1, f"{name} is stored {len(stored)} times"
    check_answers(path, model)
    if updatable:
        archive = aotpack.load(path)
        torch.manual_seed(1)
        other = Model()
        archive.update_weights(other.state_dict())
        check_answers(archive, other)


@pytest.fixture
def check_answers() -> Callable[..., None]:
    """Two calls of one context against eager; whichever target this host chooses."""

    def check(archive: aotpack.Model | Path, model: nn.Module) -> None:
        if isinstance(archive, Path):
            archive = aotpack.load(archive, verify="full")
        assert archive.target == max(target for target in TARGETS if Target(target).runs_on(Target.host()))
        context, double = archive.context(), copy.deepcopy(model).double()
        for size in (1, 9):
            index = torch.randint(0, 10, (size,))
            assert_close(list(map(torch.as_tensor, context(index))), [t.float() for t in double(index)])

    return check


# ---- the table of constants -----------------------------------------------------------------------------------------


def _module(target: str, *constants: LoweredConstant) -> LoweredModule:
    return LoweredModule(target=target, sources=(), constants=constants, kernels=())


def _in_two_layouts(program: Program, attribute: str) -> list[tuple[str, LoweredConstant]]:
    info = program.constant_info(attribute)
    layouts = [(8, 1), (1, 4)]
    return [
        (t, LoweredConstant(attribute, info, torch.float32, (4, 8), stride))
        for t, stride in zip(TARGETS, layouts, strict=True)
    ]


def _table(program: Program, found: list[tuple[str, LoweredConstant]]) -> ConstantTable:
    (unit,) = units_of([program])
    return ConstantTable([(unit, program, _module(target, c)) for target, c in found], Identities(), None)


def test_a_constant_in_two_layouts_is_two_rows() -> None:
    program = aot_export(nn.Linear(8, 4), (torch.randn(2, 8),))
    name = next(name for name in program.constant_names() if program.value(name).dim() == 2)
    table = _table(program, _in_two_layouts(program, name))
    first, second = (row.value() for row in table.rows)
    assert (first.stride(), second.stride()) == ((8, 1), (1, 4))
    torch.testing.assert_close(first, second)
    assert len(_table(program, _in_two_layouts(program, name)[:1] * 2).rows) == 1


def test_state_has_one_layout() -> None:
    program = aot_export(nn.Linear(8, 4), (torch.randn(2, 8),))
    name = next(name for name in program.constant_names() if program.value(name).dim() == 2)
    state = [
        (target, dataclasses.replace(c, info=ConstantInfo("buffer", c.info.sources, mutated=True)))
        for target, c in _in_two_layouts(program, name)
    ]
    with pytest.raises(BuildError, match="all modules must read it in one layout"):
        _table(program, state)
