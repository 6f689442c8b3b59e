"""Operators that `torch.library.define` and `impl` make out of Python functions: archives have what these compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack import Dim
from aotpack.errors import CaptureError
from aotpack.export import aot_export, load_exported
from tests.export.conftest import Build, assert_close

OPS = torch.ops.aotpack_library
_library = torch.library.Library("aotpack_library", "DEF")


def define(schema: str, function: Any, key: str = "CPU") -> None:
    _library.define(schema)
    _library.impl(schema.partition("(")[0], function, key)


def _scale_(x: Tensor, by: float) -> None:
    x.mul_(by)


# By the functions of torch.library, for devices and for all of them; without a fake implementation.
torch.library.define("aotpack_library::affine", "(Tensor x, float scale, *, float shift=1.5) -> Tensor")


@torch.library.impl("aotpack_library::affine", "cpu")
def _affine(x: Tensor, scale: float, *, shift: float = 1.5) -> Tensor:
    return x * scale + shift


torch.library.define("aotpack_library::halves", "(Tensor x) -> (Tensor, Tensor)")


@torch.library.impl("aotpack_library::halves", "default")
def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    # An operator that calls another one.
    middle = x.shape[-1] // 2
    return OPS.affine(x[..., :middle], 2.0), OPS.affine.default(x[..., middle:], 1.0, shift=0.0).clone()


# By a library's methods: overloads, lists, results of unknown size, written arguments, every key.
define("add(Tensor x, int n) -> Tensor", lambda x, n: x + n, "CompositeExplicitAutograd")
define("add.tensor(Tensor x, Tensor y) -> Tensor", lambda x, y: x + 2 * y, "CPU")
define("parts(Tensor x, SymInt width) -> Tensor[]", lambda x, width: [part.exp() for part in x.split(width, -1)])
define("positive(Tensor x) -> Tensor", lambda x: x[x > 0])
define("scale_(Tensor(a!) x, float by) -> ()", _scale_)
define("composite(Tensor x) -> Tensor", lambda x: x.sin() + 1, "CompositeImplicitAutograd")
define("cube(Tensor x) -> Tensor", lambda x: x**3)
define("by_numpy(Tensor x) -> Tensor", lambda x: torch.from_numpy(x.numpy() * 2))
define("by_item(Tensor x) -> Tensor", lambda x: x * 2 if x.sum().item() > 0 else x)
define("only_meta(Tensor x) -> Tensor", lambda x: torch.empty_like(x), "Meta")
for _name in ("by_numpy", "by_item"):
    torch.library.register_fake(f"aotpack_library::{_name}", torch.empty_like, lib=_library)
torch.library.register_fake("aotpack_library::cube", torch.empty_like, lib=_library)
torch.library.register_autograd(
    "aotpack_library::cube",
    # Not what autograd would find: it is visible which backward was taken.
    lambda ctx, gradient: gradient * 7,
    setup_context=lambda ctx, inputs, output: None,
    lib=_library,
)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(4))

    def forward(self, x: Tensor) -> dict[str, Any]:
        OPS.scale_(self.total, 2.0)
        y = x + 1
        OPS.scale_(y, 3.0)
        return {
            "affine": OPS.affine(x, scale=3.0),
            "halves": OPS.halves(x),
            "overloads": (OPS.add(x, 3), OPS.add(x, y), OPS.add.tensor(x, y=y), OPS.add.default(x, 1)),
            "parts": torch.cat(OPS.parts(x, 1)),
            "positive": OPS.positive(x),
            "composite": OPS.composite(x),
            "cube": OPS.cube(x),
            "written": y,
            "total": self.total + 0,
        }


def test_operators_with_python_kernels_are_traced_through(build: Build) -> None:
    archive = build(Model(), (torch.randn(5, 4),), dynamic_shapes={"x": {0: Dim("n", 1, 64)}}, any_size=False)
    context, model = archive.context(), Model()
    for rows in (5, 1, 2, 64, 17):
        x = torch.randn(rows, 4)
        assert_close(context(x), model(x))
    for x in (torch.zeros(3, 4), torch.full((2, 4), torch.nan), torch.full((1, 4), torch.inf)):
        assert_close(context(x), model(x))


def test_backwards_of_library_operators_are_kept(build: Build) -> None:
    def model(x: Tensor) -> Tensor:
        return (OPS.cube(x) + OPS.affine(x, 2.0)).sum()

    archive = build(model, (torch.randn(3, requires_grad=True),), mode="joint")
    x = torch.randn(3, requires_grad=True)
    got = archive(x.detach())
    assert_close(got["outputs"], model(x).detach())
    # 7 by the operator's own backward; 2 through the implementation of the other, which has none.
    assert_close(got["input_gradients"]["x"], torch.full((3,), 9.0))


def test_exported_programs_with_calls_of_library_operators_are_traced_through(tmp_path: Path) -> None:
    class Written(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = OPS.cube(x)
            OPS.scale_(y, 2.0)
            return y + 1

    x = torch.randn(4)
    exported = torch.export.export(Written(), (x,))
    assert any(node.target is OPS.cube.default for node in exported.graph.nodes)
    torch.export.save(exported, tmp_path / "model.pt2")
    program = load_exported(tmp_path / "model.pt2")
    operators = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert operators
    assert {operator.namespace for operator in operators} == {"aten"}
    assert_close(program.graph_module(x), (Written()(x),))


@pytest.mark.parametrize(("name", "reason"), [("by_numpy", r"numpy\(\)"), ("by_item", "branches on a data-dependent")])
def test_kernels_that_cannot_be_traced_are_refused_with_the_line(name: str, reason: str) -> None:
    def model(x: Tensor) -> Tensor:
        return getattr(OPS, name)(x) + 1  # the model's line

    with pytest.raises(CaptureError, match=rf"custom operator aotpack_library::{name} cannot be traced") as caught:
        aot_export(model, (torch.ones(4),))
    assert "test_library_operators.py" in str(caught.value)
    assert "C++ kernel" in str(caught.value.hint)


def test_operators_of_torch_are_left_alone() -> None:
    from aotpack.export.custom_ops import python_kernels

    found = {op for op in python_kernels.python_operators() if python_kernels.python_kernel(op) is not None}
    names = {op.name() for op in found}
    assert {"aotpack_library::affine", "aotpack_library::add", "aotpack_library::add.tensor"} <= names
    assert "aotpack_library::only_meta" not in names
    assert not {op.namespace for op in found} & {"aten", "prims", "quantized_decomposed", "aotpack", "rngprims"}
