"""Control flow that depends on data, in archives: branches, loops, scans, maps, attention with functions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.map import map as over_rows
from torch._higher_order_ops.while_loop import while_loop

from aotpack.errors import CaptureError
from aotpack.export import aot_export, load_exported
from tests.export.conftest import Build, assert_close, check
from tests.export.control_flow.attention import ATTENTION
from tests.export.control_flow.cases import BRANCHES, Branches, Bundle, Case, CountingBranches, Linears
from tests.export.control_flow.loops import LOOPS, SCANS, Repeated
from tests.support.building import Pack, joint_reference

FAMILIES = {"branches": BRANCHES, "loops": LOOPS, "scans": SCANS, "attention": ATTENTION}


@pytest.mark.parametrize("cases", FAMILIES.values(), ids=FAMILIES.keys())
def test_models_answer_as_eager(cases: dict[str, Case], build: Build) -> None:
    bundle = Bundle({name: case.model for name, case in cases.items()}).eval()
    rounds = [
        {name: case.calls[i % len(case.calls)] for name, case in cases.items()}
        for i in range(max(len(case.calls) for case in cases.values()))
    ]
    dims = {"calls": {n: tuple(case.dims) or (None,) * len(case.calls[0]) for n, case in cases.items()}}
    with torch.no_grad():
        archive = build(bundle, (rounds[0],), dynamic_shapes=dims, any_size=False)
    check(archive, bundle, *((calls,) for calls in rounds))


def test_the_families_are_wide() -> None:
    assert sum(map(len, FAMILIES.values())) >= 25


def test_state_that_a_branch_computes(build: Build) -> None:
    model = CountingBranches()
    with torch.no_grad():
        archive = build(model, (torch.ones(2, 3),))
        context = archive.context()
        for x in (torch.ones(2, 3), -torch.ones(2, 3), torch.ones(2, 3)):
            assert_close(context(x), model(x))


class Noise(nn.Module):
    """Random numbers in a loop and in a branch."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.arange(6)
        drawn = while_loop(
            lambda i, y: i < 6,
            lambda i, y: (i + 1, torch.where((rows == i)[:, None], torch.rand(6, 3), y)),
            (torch.zeros((), dtype=torch.int64), torch.zeros(6, 3)),
        )[1]
        return drawn, torch.cond(x.sum() > 0, lambda x: torch.rand(3), lambda x: torch.rand(3) + 1, (x,))


def test_each_step_draws_other_numbers(build: Build) -> None:
    with torch.no_grad():
        archive = build(Noise(), (torch.ones(2),))
    first, branch = archive(torch.ones(2))
    assert len({tuple(row) for row in first.tolist()}) == 6
    assert ((first > 0) & (first < 1)).all() and (branch < 1).all()
    again, other = archive(-torch.ones(2))
    assert not torch.equal(first, again) and (other >= 1).all()


class JointBranches(Linears):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.b(x)

        def positive(h: Tensor) -> Any:
            return torch.cond(h.mean() > 0.1, lambda h: self.a(h).sin(), lambda h: h.exp(), (h,))

        chosen: Tensor = torch.cond(x.sum() > 0, positive, lambda h: h * 2, (hidden,))
        rows: Tensor = over_rows(lambda row: self.a(row).tanh(), x)
        return chosen.pow(2).mean() + rows.pow(2).sum()


def test_gradients(build: Build) -> None:
    torch.manual_seed(0)
    model = JointBranches()
    calls = [torch.randn(3, 4).abs(), -torch.randn(3, 4).abs(), torch.randn(3, 4).abs() * 9]
    archive = build(model, (calls[0],), mode="joint")
    for x in calls:
        expected = joint_reference(model, x)
        # What the branch that is taken does not read has no gradient in eager, and one of zeros here.
        known = dict(model.named_parameters())
        gradients = {
            name: torch.zeros_like(known[name]) if value is None else value
            for name, value in expected["gradients"].items()
        }
        assert_close(archive(x), {**expected, "gradients": gradients})


def test_weights_are_packed_inside() -> None:
    program = aot_export(Repeated().eval(), (torch.tensor(2), torch.randn(2, 4)))
    from aotpack.export.driver.pipeline import select
    from aotpack.export.ir.regions import all_nodes
    from aotpack.export.passes.runner import run_passes

    program = run_passes(program, select())
    targets = [str(node.target) for node in all_nodes(program.graph_module)]
    assert "aotpack.packed_linear.default" in targets
    assert not any("linear" in target and "packed" not in target for target in targets)
    assert all(program.constants[name].recipe is not None for name in program.constant_names() if "packed" in name)


def test_programs_from_files(build: Build, pack: Pack, tmp_path: Any) -> None:
    import aotpack

    model, x = LOOPS["branch"].model, torch.randn(4)
    with torch.no_grad():
        exported = torch.export.export(model, (torch.tensor(2), x), strict=False)
    torch.export.save(exported, tmp_path / "model.pt2")
    archive = aotpack.load(pack(load_exported(tmp_path / "model.pt2")))
    for count in (0, 5):
        assert_close(archive(torch.tensor(count), x), model(torch.tensor(count), x))


def test_replaceable_weights(pack: Pack) -> None:
    import aotpack

    model, other = Branches().eval(), Branches().eval()
    archive = aotpack.load(pack(aot_export(model, (torch.ones(3, 4),)), updatable=True))
    archive.update_weights({name: value.numpy() for name, value in other.state_dict().items()})
    for x in (torch.ones(3, 4), -torch.ones(3, 4)):
        assert_close(archive(x), other(x))


def test_loops_use_no_more_memory_with_more_steps(build: Build) -> None:
    def grown(count: Tensor, x: Tensor) -> Any:
        return while_loop(lambda i, x: i < count, lambda i, x: (i + 1, x * 1.0001), (torch.tensor(0), x))[1]

    archive = build(grown, (torch.tensor(2), torch.ones(1 << 20)))
    archive(torch.tensor(2), torch.ones(1 << 20))
    before = _resident()
    archive(torch.tensor(300), torch.ones(1 << 20))
    assert _resident() - before < 64 << 20


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_writes_to_tensors_from_outside_are_named() -> None:
    def written(count: Tensor, x: Tensor) -> Any:
        cache = torch.zeros(8, 4)

        def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            cache.index_copy_(0, i.reshape(1), x[None])
            return i + 1, x + cache.sum(0)

        return while_loop(lambda i, x: i < count, step, (torch.tensor(0), x))

    with torch.no_grad(), pytest.raises(CaptureError, match="while_loop writes to a tensor from outside") as caught:
        aot_export(written, (torch.tensor(2), torch.randn(4)))
    assert "carry the tensor" in (caught.value.hint or "")


def test_numbers_of_steps_are_exact(build: Build) -> None:
    def counted(count: Tensor) -> Any:
        return while_loop(lambda i: i < count, lambda i: (i + 1,), (torch.zeros((), dtype=torch.int64),))[0]

    archive = build(counted, (torch.tensor(3),))
    for count in itertools.chain(range(4), (1000,)):
        assert int(archive(torch.tensor(count))) == count
