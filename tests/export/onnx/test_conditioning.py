"""Example calls whose results rounding decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import aotpack
from aotpack.export import BuildOptions, build_archive, from_onnx
from tests.export.onnx.models import model

pytestmark = pytest.mark.torch

# Elements of a row are equal but for rounding; the normalization divides what is left of them.
_ILL = """
g (int64[2] i) => (float[2, 64] y)
<float[64, 64] w, float tiny = {1e-20}>
{
  one = Cast<to = 1>(i)
  axis = Constant<value_ints = [1]>()
  column = Unsqueeze(one, axis)
  wide = Expand(column, shape)
  products = MatMul(wide, w)
  mean = ReduceMean<keepdims = 1>(products, axis)
  left = Sub(products, mean)
  square = Mul(left, left)
  variance = ReduceMean<keepdims = 1>(square, axis)
  some = Add(variance, tiny)
  root = Sqrt(some)
  y = Div(left, root)
}"""


def _ill_conditioned() -> onnx.ModelProto:
    made = model(_ILL.replace("float tiny", "int64[2] shape = {2, 64}, float tiny").replace("float[64, 64] w, ", ""))
    # Columns are permutations of each other: their sums differ by the order of the terms.
    column = np.random.default_rng(0).uniform(1, 2, 64)
    columns = np.stack([np.roll(column, i) for i in range(64)], 1).astype(np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(columns, "w"))
    return made


def test_results_that_rounding_decides_are_open(tmp_path: Path, cache_dir: Path) -> None:
    program = from_onnx(_ill_conditioned())
    assert program.reference is not None
    assert any("rounding" in reason for reason in program.reference.open)
    path = tmp_path / "model.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    assert aotpack.load(path)(np.array([0, 1]))["y"].shape == (2, 64)


def test_results_of_plain_models_are_not() -> None:
    made = model("g (float[2, 64] x) => (float[2, 64] y) { y = MatMul(x, w) }")
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    program = from_onnx(made)
    assert program.reference is not None
    assert not program.reference.open
