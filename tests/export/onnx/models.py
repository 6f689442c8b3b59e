"""Small ONNX models as text."""

from __future__ import annotations

import onnx
import onnx.parser

HEAD = '<ir_version: 9, opset_import: ["" : 18]>\n'


def model(text: str, head: str = HEAD) -> onnx.ModelProto:
    return onnx.parser.parse_model(head + text)


# A size of the input goes through Shape, Gather, Mul and Concat to a Reshape.
SHAPES = model("""
g (float[batch, length, 4] x) => (float[rows, 4] y, int64[2] sizes)
<int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[1] four = {4}>
{
  s = Shape(x)
  b = Gather(s, zero)
  l = Gather(s, one)
  n = Mul(b, l)
  n1 = Unsqueeze(n, first)
  sizes = Concat<axis = 0>(n1, four)
  y = Reshape(x, sizes)
}""")

# A loop over a number of the call that keeps all rows, a branch on a flag of the call.
CONTROL_FLOW = model("""
g (float[3, 4] x, int64 n, bool flag) => (float[3, 4] y, float[steps, 3, 4] rows, float[3, 4] z)
<float[4] w = {1.0, 2.0, 3.0, 4.0}>
{
  goes_on = Constant<value = bool {1}>()
  y, rows = Loop<body = body (int64 i, bool c, float[3, 4] v) => (bool c2, float[3, 4] v2, float[3, 4] row) {
    c2 = Identity(c)
    half = Constant<value = float {0.5}>()
    h = Mul(v, half)
    v2 = Add(h, w)
    row = Neg(v2)
  }>(n, goes_on, x)
  z = If<
    then_branch = yes () => (float[3, 4] a) { a = Add(x, w) },
    else_branch = no () => (float[3, 4] b) { k = Constant<value = float {7.0}>()
      b = Sub(x, k) }
  >(flag)
}""")
