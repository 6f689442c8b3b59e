"""Large constants inside of a file are read from it, and are not held twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
import torch
from google.protobuf.message import DecodeError
from onnx import helper, numpy_helper

from aotpack.export.onnx import inline
from aotpack.export.onnx.base.errors import OnnxError
from aotpack.export.onnx.reading import read_model
from tests.export.onnx.one_node import Array

pytestmark = pytest.mark.torch

_RANDOM = np.random.default_rng(5)


def _model(*weights: Array, doc: str = "") -> onnx.ModelProto:
    """A sum of constants; `doc` moves their data in the file."""
    tensors = [numpy_helper.from_array(value, f"w{i}") for i, value in enumerate(weights)]
    nodes, last = [], "x"
    for i, value in enumerate(weights):
        name = f"w{i}"
        if value.dtype != np.float32:
            nodes.append(helper.make_node("Cast", [name], [name + "f"], to=onnx.TensorProto.FLOAT))
            name += "f"
        nodes.append(helper.make_node("Add", [last, name], [f"y{i}"]))
        last = f"y{i}"
    sizes = [1, weights[0].size]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, sizes) for name in ("x", last)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9, doc_string=doc)


@pytest.mark.parametrize("shift", range(5))
def test_constants_are_those_of_the_file(shift: int, tmp_path: Path) -> None:
    size = inline._LEAST
    weights = [
        _RANDOM.normal(size=size).astype(np.float32),
        _RANDOM.integers(-9, 9, size).astype(np.int8),
        np.arange(size, dtype=np.int64),
        _RANDOM.normal(size=size).astype(np.float16),
    ]
    data = _model(*weights, doc="d" * shift).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    assert len(inline.split(memoryview(data)).message) < size // 8
    for source in (data, tmp_path / "m.onnx"):
        found = read_model(source).graph.initializers
        for i, value in enumerate(weights):
            assert torch.equal(found[f"w{i}"], torch.from_numpy(value))


def test_data_of_another_size_is_refused() -> None:
    model = _model(np.zeros(inline._LEAST, np.float32))
    model.graph.initializer[0].dims[0] += 1
    with pytest.raises(OnnxError, match=r"'w0' of \[65537\] needs 262148 bytes, the file has 262144"):
        read_model(model.SerializeToString())


def test_a_damaged_file_is_split_into_what_the_parser_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "_LEAST", 8)
    data = _model(np.arange(40, dtype=np.float32), np.arange(40, dtype=np.int8)).SerializeToString()
    random, same, taken = Random(7), 0, 0
    for _ in range(4000):
        damaged = bytearray(data)
        for _ in range(random.choice((1, 1, 2, 5))):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        if random.random() < 0.2:
            del damaged[random.randrange(len(damaged)) :]
        whole = bytes(damaged)
        try:
            wanted = onnx.ModelProto.FromString(whole)
        except DecodeError:
            inline.split(memoryview(whole))
            continue
        found = inline.split(memoryview(whole))
        made = onnx.ModelProto.FromString(found.message)
        for place, span in found.spans.items():
            made.graph.initializer[place].raw_data = whole[span.start : span.end]
        assert made == wanted
        same, taken = same + 1, taken + len(found.spans)
    assert same > 500
    assert taken > 500


_PEAK = """
import sys
from aotpack.export.onnx import operators
from aotpack.export.onnx.reading import read_model
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) << 10
operators.register()
read_model(sys.argv[1])
before = peak()
model = read_model(sys.argv[2])
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_constants_are_in_memory_once(tmp_path: Path) -> None:
    (tmp_path / "small.onnx").write_bytes(_model(np.zeros(1 << 16, np.float32)).SerializeToString())
    large = [np.ones(1 << 24, np.float32) for _ in range(3)]
    (tmp_path / "large.onnx").write_bytes(_model(*large).SerializeToString())
    command = [sys.executable, "-c", _PEAK, str(tmp_path / "small.onnx"), str(tmp_path / "large.onnx")]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 1.3 * 3 * large[0].nbytes
