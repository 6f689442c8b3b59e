"""ONNX models as programs: names, dims, constants, and archives of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from typer.testing import CliRunner

import aotpack
from aotpack.cli.app import app
from aotpack.errors import AotpackError
from aotpack.export import BuildOptions, build_archive, from_onnx, ops
from aotpack.export.ir.rewriter import bound_arguments
from aotpack.export.onnx.base.errors import NotConstantError, OnnxError
from aotpack.export.onnx.importer import load_onnx
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.cpu.pipeline import CPU
from aotpack.export.passes.runner import run_passes
from tests.export.onnx.models import CONTROL_FLOW, SHAPES, model

pytestmark = pytest.mark.torch


def built(proto: onnx.ModelProto, folder: Path, *args: Any) -> aotpack.Model:
    path = folder / "model.aotpack"
    build_archive(from_onnx(proto, args or None), path, options=BuildOptions(opt_level=1, jobs=1))
    return aotpack.load(path)


def test_sizes_stay_dynamic(tmp_path: Path) -> None:
    loaded = built(SHAPES, tmp_path)
    assert "x: float32[batch, length, 4]" in str(loaded.signature)
    for batch, length in ((1, 1), (3, 6)):
        x = np.random.rand(batch, length, 4).astype(np.float32)
        found = loaded(x)
        assert np.array_equal(found["y"], x.reshape(-1, 4))
        assert np.asarray(found["sizes"]).tolist() == [batch * length, 4]


def test_control_flow_of_the_call(tmp_path: Path) -> None:
    loaded = built(CONTROL_FLOW, tmp_path)
    x, w = np.random.rand(3, 4).astype(np.float32), np.arange(1, 5, dtype=np.float32)
    for steps, flag in ((0, True), (3, False), (40, True)):
        value, rows = x, np.zeros((steps, 3, 4), np.float32)
        for i in range(steps):
            value = value * np.float32(0.5) + w
            rows[i] = -value
        found = loaded(x, np.array(steps), np.array(flag))
        np.testing.assert_allclose(found["y"], value, rtol=1e-6)
        np.testing.assert_allclose(found["rows"], rows, rtol=1e-6)
        assert np.array_equal(found["z"], x + w if flag else x - 7)


def test_a_scan_of_no_steps(tmp_path: Path) -> None:
    proto = model("""
    g (float[0, 3] x, float[3] s) => (float[3] last, float[0, 3] rows)
    { last, rows = Scan<num_scan_inputs = 1, body = b (float[3] v, float[3] r) => (float[3] v2, float[3] o) {
      v2 = Add(v, r)
      o = Neg(v2)
    }>(s, x) }""")
    found = built(proto, tmp_path)(np.zeros((0, 3), np.float32), np.arange(3, dtype=np.float32))
    assert np.asarray(found["last"]).tolist() == [0, 1, 2]
    assert np.asarray(found["rows"]).shape == (0, 3)


def test_a_loop_with_a_stated_number_of_steps_and_a_condition(tmp_path: Path) -> None:
    """More steps than are written one after the other."""
    proto = model("""
    g (float[n, 4] x, float top) => (float[n, 4] y)
    <int64 steps = {40}>
    {
      goes_on = Constant<value = bool {1}>()
      y = Loop<body = body (int64 i, bool c, float[n, 4] v) => (bool c2, float[n, 4] v2) {
        v2 = Add(v, v)
        m = ReduceMax<keepdims = 0>(v2)
        c2 = Less(m, top)
      }>(steps, goes_on, x)
    }""")
    loaded = built(proto, tmp_path)
    x = np.random.rand(3, 4).astype(np.float32)
    for top in (0.0, 100.0, np.inf):
        y, left = x, 40
        while left and (left == 40 or y.max() < top):
            y, left = y + y, left - 1
        np.testing.assert_array_equal(loaded(x, np.float32(top))["y"], y)


def test_a_loop_may_carry_what_it_only_writes(tmp_path: Path) -> None:
    """Its rank before the first step does not matter, if there is one."""
    proto = model("""
    g (float[3, 4] x, int64 n) => (float[3, 4] y, float[m, k] last)
    <float nothing = {0.0}>
    {
      goes_on = Constant<value = bool {1}>()
      y, last = Loop<
        body = body (int64 i, bool c, float[3, 4] v, float[r, s] w) => (bool c2, float[3, 4] v2, float[4, 3] w2) {
        c2 = Identity(c)
        v2 = Add(v, v)
        w2 = Transpose(v)
      }>(n, goes_on, x, nothing)
    }""")
    x = np.random.rand(3, 4).astype(np.float32)
    loaded = built(proto, tmp_path, x, np.array(2))
    for steps in (1, 3, 40):
        found = loaded(x, np.array(steps))
        np.testing.assert_array_equal(found["y"], x * np.float32(2.0) ** steps)
        np.testing.assert_array_equal(found["last"], x.T * np.float32(2.0) ** (steps - 1))
    with pytest.raises(AotpackError, match="makes no step"):
        loaded(x, np.array(0))


@pytest.mark.parametrize("columns", [1, 3])
def test_a_branch_on_sizes_with_results_of_other_ranks(columns: int, tmp_path: Path) -> None:
    """As torch.onnx writes `squeeze`: the example decides."""
    proto = model("""
    g (float[n, k] x) => (int64[r] y)
    <int64 one = {1}, int64[1] axis = {1}>
    {
      s = Shape(x)
      k = Gather(s, one)
      single = Equal(k, one)
      z = If<
        then_branch = yes () => (float[a] a) { a = Squeeze(x, axis) },
        else_branch = no () => (float[b, c] b) { b = Identity(x) }
      >(single)
      y = Shape(z)
    }""")
    x = np.random.rand(4, columns).astype(np.float32)
    loaded = built(proto, tmp_path, x)
    assert np.asarray(loaded(x)["y"]).tolist() == ([4] if columns == 1 else [4, 3])
    with pytest.raises(AotpackError, match="x"):
        loaded(np.zeros((4, 2 if columns == 1 else 1), np.float32))


def test_a_dim_that_the_model_fixes_becomes_static() -> None:
    proto = model("""g (float[batch, n] x) => (float[batch, n] y)
    <float[5] w = {1.0, 2.0, 3.0, 4.0, 5.0}> { y = Add(x, w) }""")
    program = from_onnx(proto)
    assert str(program.signature).startswith("forward(x: float32[batch, 5])")
    assert any(note.subject == "n" for note in program.notes)


def test_inputs_that_become_constants() -> None:
    proto = model("g (float[2, 3] x, int64[1] axes) => (float[a, b] y) { y = ReduceSum(x, axes) }")
    with pytest.raises(NotConstantError, match=r"ReduceSum_y .*axes are not constants"):
        load_onnx(proto).module(torch.ones(2, 3), torch.tensor([1]))
    source = load_onnx(proto, constants={"axes": [1]})
    assert source.module.inputs == ["x"]
    assert source.module(torch.ones(2, 3))["y"].tolist() == [[3.0], [3.0]]
    with pytest.raises(OnnxError, match="no input 'axis'; it has x, axes"):
        load_onnx(proto, constants={"axis": [1]})


def test_names_of_constants_are_those_of_the_file() -> None:
    proto = model("""g (float[2] x) => (float[2] y)
    <float[2] w = {1.0, 2.0}, float[2] scale = {3.0, 4.0}> { a = Mul(x, scale)
    y = Add(a, w) }""")
    proto.graph.initializer[0].name = proto.graph.node[1].input[1] = "block.0.w"
    source = load_onnx(proto)
    assert set(source.module.state_dict()) == {"block.0.w", "scale"}


def test_archives_know_the_names_of_inputs_in_the_file(tmp_path: Path) -> None:
    proto = model("g (float[2] x, float[2] z) => (float[2] y) { y = Add(x, z) }")
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "input.1"
    proto.producer_name = "maker"
    program = from_onnx(proto)
    assert [spec.name for spec in program.signature.inputs] == ["input_1", "z"]
    build_archive(program, tmp_path / "m.aotpack", options=BuildOptions(opt_level=1, jobs=1))
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "m.aotpack"), "--passes"]).output
    assert "maker, opset 18" in shown
    assert "input_1  is 'input.1' in the file" in shown


def test_errors_name_the_node() -> None:
    proto = model("g (float[n] x, float[m] z) => (float[n] y) { y = Add(x, z) }")
    proto.graph.node[0].name = "sum of both"
    with pytest.raises(OnnxError, match=r"sum of both \(Add, opset 18\)"):
        load_onnx(proto).module(torch.ones(2), torch.ones(3))


def test_dims_of_minus_one_are_those_of_the_call() -> None:
    """So do converters write them that know no symbolic dims."""
    proto = model("g (float[batch, 3] x) => (float[batch, 3] y) { y = Neg(x) }")
    for value in (proto.graph.input[0], proto.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    assert str(from_onnx(proto).signature).startswith("forward(x: float32[x_0, 3])")


@pytest.mark.parametrize("size", [1 << 40, 1 << 62])
def test_sizes_of_which_no_example_can_be_made(size: int) -> None:
    proto = model("g (float[batch, 3] x) => (float[batch, 3] y) { y = Neg(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = size
    with pytest.raises(OnnxError, match=rf"'x' is FLOAT\[{size}, 3\] in the file, of which no example"):
        load_onnx(proto)


@pytest.mark.parametrize(
    ("node", "act"),
    [
        ("y = Relu(c)", "relu"),
        ("y = Clip(c, zero, six)", "relu6"),
        ("y = Clip(c, zero)", "relu"),
        ("r = Relu(c) y = Clip(r, , six)", "relu6"),
        ("y = HardSwish(c)", "hardswish"),
        ("s = HardSigmoid<alpha = 0.16666667, beta = 0.5>(c) y = Mul(c, s)", "hardswish"),
        ("a = Add(c, three) r = Clip(a, zero, six) m = Mul(c, r) y = Div(m, six)", "hardswish"),
        ("s = Sigmoid(c) y = Mul(c, s)", "silu"),
        ("d = Div(c, root) e = Erf(d) a = Add(e, one) m = Mul(c, a) y = Mul(m, half)", "gelu"),
        ("y = Gelu(c)", "gelu"),
    ],
)
def test_activations_are_part_of_the_convolution(node: str, act: str) -> None:
    proto = model(
        f"""g (float[1, 2, 5, 5] x, float[3, 2, 3, 3] w) => (float[1, 3, 3, 3] y)
    <float zero = {{0.0}}, float six = {{6.0}}, float three = {{3.0}}, float one = {{1.0}}, float half = {{0.5}},
     float root = {{1.4142135}}> {{ c = Conv(x, w) {node} }}""",
        '<ir_version: 10, opset_import: ["" : 20]>\n',
    )
    weight = np.random.default_rng(1).normal(size=(3, 2, 3, 3)).astype(np.float32)
    program = run_passes(from_onnx(proto, constants={"w": weight.tolist()}), (*COMMON, *CPU))
    (call,) = program.graph.find_nodes(op="call_function", target=ops.packed_conv)
    assert bound_arguments(call)["act"] == ops.ACTIVATIONS[act][0]
