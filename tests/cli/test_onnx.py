"""`aotpack build model.onnx`."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import pytest
import typer
from typer.testing import CliRunner

from aotpack.cli.app import app
from aotpack.cli.onnx import parse_constants, parse_sizes


def test_sizes_and_constants() -> None:
    assert parse_sizes(["batch=4", "a=b=2"]) == {"batch": 4, "a=b": 2}
    assert parse_constants(["axes=[0,1]", "k=3"]) == {"axes": [0, 1], "k": 3}
    for text in ("batch", "batch=x", "=3"):
        with pytest.raises(typer.BadParameter, match="DIM=SIZE"):
            parse_sizes([text])
    for text in ("axes", "axes=[", "=3"):
        with pytest.raises(typer.BadParameter, match="INPUT=VALUE"):
            parse_constants([text])


@pytest.mark.torch
def test_a_file_is_built(tmp_path: Path) -> None:
    import numpy as np

    import aotpack

    text = """<ir_version: 9, opset_import: ["" : 18]>
    g (float[batch, 3] x, int64[1] axes) => (float[batch, 1] y) { y = ReduceSum(x, axes) }"""
    source = tmp_path / "sum.onnx"
    source.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    options = ["--constant", "axes=[1]", "--size", "batch=4", "-O1"]
    result = CliRunner().invoke(app, ["build", str(source), "-o", str(tmp_path / "sum.aotpack"), *options])
    assert result.exit_code == 0, result.output
    model = aotpack.load(tmp_path / "sum.aotpack")
    assert np.array_equal(model(np.ones((2, 3), np.float32))["y"], [[3], [3]])
