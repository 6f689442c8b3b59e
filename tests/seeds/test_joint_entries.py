"""Which gradients an entry returns, and several entries of one model in an archive.

The scenarios of the third seed document, "AOTAutograd", that are about signatures; the others are in test_joint.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.errors import CaptureError, EntryNotFoundError
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.support.building import assert_close
from tests.support.torchless import RemoteModel

pytestmark = pytest.mark.torch

Build = Callable[..., RemoteModel]


def wanted(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def _product(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum()


@pytest.mark.parametrize("both", [False, True])
def test_requires_grad_is_that_of_the_example(both: bool) -> None:
    program = aot_export(_product, (wanted(3), torch.ones(3).requires_grad_(both)), mode="joint")
    names = [spec.name for spec in program.signature.outputs if "input_gradients" in spec.name]
    assert names == ["output.input_gradients.x", "output.input_gradients.y"][: 1 + both]


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x @ self.weight + y).square().sum()


SETS: tuple[tuple[str, ...], ...] = (("y", "x"), ("x",), ())


def test_requires_grad_fake_via_dynamo_recompiles(tmp_path: Path, cache_dir: Path) -> None:
    """An entry for each set of inputs whose gradients are wanted, in one archive, over the same weights."""
    model, example = Weighted(), (torch.randn(2, 3), torch.randn(2, 3))
    program = aot_export(
        model, example, mode="joint", dynamic_shapes={"x": {0: "n"}, "y": {0: "n"}}, input_gradients=SETS
    )
    path = tmp_path / "sets.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    archive = aotpack.load(path)
    assert [entry.name for entry in archive.manifest.entries] == ["joint[x,y]", "joint[x]", "joint[]"]
    # The weight for the product and for its backward, of all entries.
    assert [constant.sources for constant in archive.manifest.constants] == [("weight",)] * 2
    for wanted_names in SETS:
        entry = archive.entry("joint", input_gradients=wanted_names[::-1])
        for rows in (1, 3):
            x, y = (torch.randn(rows, 3, requires_grad=name in wanted_names) for name in "xy")
            loss = model(x, y)
            gradients = torch.autograd.grad(loss, [model.weight, *(t for t in (x, y) if t.requires_grad)])
            result = entry(x.detach(), y.detach())
            assert set(result.get("input_gradients", {})) == set(wanted_names)
            assert_close(result["outputs"], loss.detach())
            assert_close([result["gradients"]["weight"], *result.get("input_gradients", {}).values()], list(gradients))
    with pytest.raises(EntryNotFoundError) as error:
        archive.context().entry("joint", input_gradients=["y"])
    assert str(error.value) == (
        "no entry 'joint' returns the gradients of 'y'; those that there are return: 'joint[x,y]': 'x', 'y'; "
        "'joint[x]': 'x'; 'joint[]': no inputs"
    )


def test_requires_grad_of_what_has_no_gradient() -> None:
    def model(x: Tensor, ids: Tensor) -> Tensor:
        return x[ids].sum()

    example = torch.randn(3), torch.tensor([0, 2])
    for sets, message in (
        ([("x", "z")], "the gradient of 'z' is wanted, which is not a floating-point tensor"),
        ([("x", "ids")], "the gradient of 'ids' is wanted"),
        ([("x", "x")], "an input twice"),
        ([("x",), ("x",)], r"two sets for the entry 'joint\[x\]'"),
        ([], "must be a list of sets"),
        (["x"], "must be a list of sets"),
        ([()], "there are no gradients to compute"),
    ):
        with pytest.raises(CaptureError, match=message):
            aot_export(model, example, mode="joint", input_gradients=sets)
    with pytest.raises(CaptureError, match='for mode="joint"'):
        aot_export(model, example, input_gradients=[("x",)])


def test_aot_export_joint_simple_repro(tmp_path: Path, cache_dir: Path) -> None:
    """The forward of a module, and a loss of it with its backward, over the same weights."""
    model, x = nn.Linear(5, 7), torch.rand(3, 4, 5)

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            return self.model(x).square().mean()

    path = tmp_path / "both.aotpack"
    programs = [aot_export(model, (x,)), aot_export(Loss(), (x,), mode="joint")]
    build_archive(programs, path, options=BuildOptions(cache_dir=cache_dir))
    archive = aotpack.load(path)
    assert_close(archive(x), model(x).detach())
    model.zero_grad()
    loss = Loss()(x)
    loss.backward()
    result = archive.entry("joint")(x)
    assert_close(result["outputs"], loss.detach())
    assert_close(result["gradients"], {"model.weight": model.weight.grad, "model.bias": model.bias.grad})
    # The weight, packed, and the bias: each is there once.
    assert len({(constant.file, constant.offset) for constant in archive.manifest.constants}) == 2
