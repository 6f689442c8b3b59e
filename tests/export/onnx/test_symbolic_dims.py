"""Dims without a size in the file: those without a name, and those that an example call fixes."""

from __future__ import annotations

import onnx
import pytest
import torch

from aotpack.export import from_onnx
from tests.export.onnx.models import model
from tests.export.onnx.one_node import imported

pytestmark = pytest.mark.torch


def _images() -> onnx.ModelProto:
    made = model("g (float[1, 3, h, w] x) => (float[1, 3, a, b] y) { y = Relu(x) }")
    for dim in made.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_param = "?"
    return made


def test_question_marks_are_sizes_of_their_own() -> None:
    program = from_onnx(_images(), sizes={"x_2": 48, "x_3": 192})
    assert program.reference is not None
    assert program.reference.inputs[0].shape == (1, 3, 48, 192)
    assert len(program.signature.dims) == 2


def test_dims_with_one_size_are_static() -> None:
    # A row is repeated for each of the batch: with one row, broadcasting hides it.
    made = model(
        "g (float[batch, 4] x) => (float[b, 4] y) <int64[2] shape = {1, 4}> { r = Reshape(x, shape)\n y = Neg(r) }"
    )
    program = from_onnx(made, sizes={"batch": 1})
    assert program.signature.inputs[0].shape == (1, 4)
    assert not program.signature.dims
    assert any("fixed by the model" in str(note) for note in program.notes)


def test_real_signals_without_a_last_dim() -> None:
    made = model("""
g (float[2, 64] x) => (float[2, 4, 9, 2] y)
<int64 step = {16}, int64 length = {16}>
{ y = STFT(x, step, , length) }""")
    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
    (found,) = imported(made, {"x": x.numpy()})
    expected = torch.view_as_real(torch.fft.rfft(x.unfold(1, 16, 16)))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("start", "end"), [(-1, -(2**63)), (2**63 - 1, -(2**63)), (-1, -(2**31) + 5)])
def test_slices_from_the_end_to_the_beginning(start: int, end: int) -> None:
    made = model(
        "g (float[n, 2] x) => (float[m, 2] y) "
        f"<int64[1] a = {{{start}}}, int64[1] b = {{{end}}}, int64[1] c = {{0}}, int64[1] d = {{-1}}> "
        "{ y = Slice(x, a, b, c, d) }"
    )
    program = from_onnx(made)
    assert len(program.signature.dims) == 1
    for rows in (1, 2, 7):
        x = torch.randn(rows, 2)
        assert torch.equal(program.runnable()(x)[0], x.flip(0))
