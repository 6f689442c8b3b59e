"""Graphs as the converter of TensorFlow writes them: channels last, transposed around convolutions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.conformance.onnx_files.case import FileCase

_CALLS = ({"batch": 2}, {"batch": 1})
CASES: tuple[FileCase, ...] = (FileCase("channels-last/mobilenet", "NHWC graph", calls=_CALLS),)

_GRAPH = """<ir_version: 8, opset_import: ["" : 15]>
g (float[batch, 33, 47, 3] x) => (float[batch, 10] y, float[batch, 34, 48, 24] up)
<int64[2] axes = {1, 2}, int64[4] sizes = {0, 34, 48, 24}>
{
  x1 = Transpose<perm = [0, 3, 1, 2]>(x)
  c1 = Conv<auto_pad = "SAME_UPPER", strides = [2, 2], kernel_shape = [3, 3]>(x1, w1)
  t1 = Transpose<perm = [0, 2, 3, 1]>(c1)
  b1 = Add(t1, bias1)
  r1 = Clip(b1, low, high)
  x2 = Transpose<perm = [0, 3, 1, 2]>(r1)
  c2 = Conv<auto_pad = "SAME_LOWER", group = 16, kernel_shape = [4, 4]>(x2, w2)
  t2 = Transpose<perm = [0, 2, 3, 1]>(c2)
  b2 = Mul(t2, scale2)
  s2 = Sigmoid(b2)
  r2 = Mul(b2, s2)
  x3 = Transpose<perm = [0, 3, 1, 2]>(r2)
  c3 = Conv<auto_pad = "VALID", kernel_shape = [1, 1]>(x3, w3)
  p3 = MaxPool<auto_pad = "SAME_UPPER", kernel_shape = [3, 3], strides = [1, 1]>(c3)
  u3 = Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(p3, , scales)
  up = Transpose<perm = [0, 2, 3, 1]>(u3)
  pooled = GlobalAveragePool(p3)
  last = Transpose<perm = [0, 2, 3, 1]>(pooled)
  flat = Squeeze(last, axes)
  products = MatMul(flat, w4)
  y = Softmax<axis = -1>(products)
}"""


def make(name: str, path: Path) -> None:
    """Writes the graph."""
    import onnx.parser
    from onnx import numpy_helper

    model = onnx.parser.parse_model(_GRAPH)
    random = np.random.default_rng(0)
    shapes = {"w1": (16, 3, 3, 3), "w2": (16, 1, 4, 4), "w3": (24, 16, 1, 1), "w4": (24, 10), "bias1": (16,)}
    values = {key: random.standard_normal(shape).astype(np.float32) * 0.3 for key, shape in shapes.items()}
    values["scale2"] = random.uniform(0.5, 1.5, 16).astype(np.float32)
    values |= {"low": np.float32(0), "high": np.float32(6), "scales": np.float32([1, 1, 2, 2])}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), key) for key, v in values.items())
    path.write_bytes(model.SerializeToString())
