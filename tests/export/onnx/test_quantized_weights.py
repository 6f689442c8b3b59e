"""Linears of ONNX files whose weights have 4 or 8 bits: read as they are stored, with the results of float weights."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from aotpack.export import BuildOptions, build_archive, from_onnx, ops
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.cpu.pipeline import CPU
from aotpack.export.passes.runner import run_passes
from tests.export.onnx.joined import JoinedArchive
from tests.export.onnx.one_node import CONTRIB, Array, by_onnxruntime, feed, one_node

pytestmark = pytest.mark.torch
pytest.importorskip("onnxruntime")

_RANDOM = np.random.default_rng(5)
_K, _N = 300, 200


def _n_bits(bits: int, block: int, *, zeros: str = "", bias: bool = False) -> onnx.ModelProto:
    """`MatMulNBits`, whose last block is not full."""
    blocks = -(-_K // block)
    numbers = _RANDOM.integers(0, 256, (_N, blocks, block * bits // 8)).astype(np.uint8)
    scales = _RANDOM.uniform(0.001, 0.1, _N * blocks).astype(np.float32)
    inputs: list[Any] = [_RANDOM.normal(size=(3, _K)).astype(np.float32), numbers, scales, None, None, None]
    if zeros == "packed":
        inputs[3] = _RANDOM.integers(0, 256, _N * -(-blocks * bits // 8)).astype(np.uint8)
    elif zeros == "floats":
        inputs[3] = _RANDOM.uniform(0, 1 << bits, _N * blocks).astype(np.float32)
    if bias:
        inputs[5] = _RANDOM.normal(size=_N).astype(np.float32)
    while inputs[-1] is None:
        inputs.pop()
    constants = range(1, len(inputs))
    model = one_node(
        "MatMulNBits", inputs, domain=CONTRIB, constants=constants, K=_K, N=_N, bits=bits, block_size=block
    )
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("o0", TensorProto.FLOAT, [3, _N]))
    return model


def _dequantized(dtype: int, block: int, *, zeros: bool = False) -> onnx.ModelProto:
    """A block-wise `DequantizeLinear` of a weight [k, n] before a `MatMul`."""
    k = 256
    low, high = {TensorProto.INT8: (-128, 128), TensorProto.UINT4: (0, 16), TensorProto.INT4: (-8, 8)}[dtype]

    def integers(name: str, rows: int) -> onnx.TensorProto:
        values = _RANDOM.integers(low, high, (rows, _N))
        return helper.make_tensor(name, dtype, [rows, _N], values.flatten().tolist())

    scales = numpy_helper.from_array(_RANDOM.uniform(0.001, 0.1, (k // block, _N)).astype(np.float32), "s")
    held = [integers("w", k), scales, *([integers("z", k // block)] if zeros else [])]
    nodes = [
        helper.make_node("DequantizeLinear", [each.name for each in held], ["d"], axis=0, block_size=block),
        helper.make_node("MatMul", ["i0", "d"], ["o0"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("i0", [3, k]), ("o0", [3, _N])))
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


MODELS = {
    "4 bits": _n_bits(4, 32),
    "4 bits, zero points": _n_bits(4, 32, zeros="packed"),
    "4 bits, an odd number of blocks": _n_bits(4, 64, zeros="packed"),
    "4 bits, zero points with fractions": _n_bits(4, 16, zeros="floats"),
    "4 bits, long blocks, bias": _n_bits(4, 128, bias=True),
    "8 bits": _n_bits(8, 32),
    "8 bits, zero points": _n_bits(8, 64, zeros="packed"),
    "int8 by blocks": _dequantized(TensorProto.INT8, 32),
    "int4 by blocks": _dequantized(TensorProto.INT4, 64),
    "uint4 by blocks, zero points": _dequantized(TensorProto.UINT4, 32, zeros=True),
}


def _inputs(model: onnx.ModelProto) -> list[Array]:
    sizes = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    return [np.random.default_rng(9).normal(size=sizes).astype(np.float32)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    calls = {name: (model, _inputs(model)) for name, model in MODELS.items()}
    archive = JoinedArchive(calls, tmp_path_factory.mktemp("quantized"))
    yield archive.results()
    archive.close()


@pytest.mark.parametrize("name", MODELS)
def test_weights_stay_quantized(name: str) -> None:
    program = run_passes(from_onnx(MODELS[name]), (*COMMON, *CPU))
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert called == [str(ops.quantized_linear)]


@pytest.mark.parametrize("name", MODELS)
def test_archives_agree_with_others(name: str, results: dict[str, list[Any]]) -> None:
    model = MODELS[name]
    arrays = feed(model, _inputs(model))
    # ONNX Runtime rounds the activations, too, of a product with what DequantizeLinear returns.
    rounds = model.graph.node[0].op_type == "DequantizeLinear"
    (expected,) = ReferenceEvaluator(model).run(None, arrays) if rounds else by_onnxruntime(model, arrays)
    (found,) = results[name]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("bits", [4, 8])
def test_archives_have_the_size_of_the_file(bits: int, tmp_path: Path, cache_dir: Path) -> None:
    path = tmp_path / "m.aotpack"
    options = BuildOptions(opt_level=1, jobs=1, cache_dir=cache_dir)
    build_archive(from_onnx(_n_bits(bits, 32)), path, options=options)
    with zipfile.ZipFile(path) as entries:
        weights = sum(info.file_size for info in entries.infolist() if info.filename.startswith("weights/"))
    # Numbers and scales of blocks, in panels of 32 columns.
    blocks, columns = -(-_K // 32), -(-_N // 32) * 32
    assert columns * _K * bits // 8 <= weights <= columns * blocks * (32 * bits // 8 + 4)
