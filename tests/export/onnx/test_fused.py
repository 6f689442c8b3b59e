"""Operators of com.microsoft and support vectors in an archive, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.export.onnx.joined import JoinedArchive
from tests.export.onnx.one_node import CONTRIB, Array, by_onnxruntime, feed, one_node, same

pytestmark = pytest.mark.torch
pytest.importorskip("onnxruntime")

_RANDOM = np.random.default_rng(11)
CASES: dict[str, onnx.ModelProto] = {}
INPUTS: dict[str, list[Any]] = {}


def _case(op: str, *inputs: Any, name: str = "", **how: Any) -> None:
    how = {"domain": CONTRIB, **how}
    CASES[name or op] = one_node(op, inputs, **how)
    INPUTS[name or op] = list(inputs)


def _floats(*shape: int) -> Array:
    return _RANDOM.normal(size=shape).astype(np.float32)


def _bytes(*shape: int) -> Array:
    return _RANDOM.integers(0, 256, shape).astype(np.uint8)


def _signed(*shape: int) -> Array:
    """Sums of pairs of products fit 16 bits: ONNX Runtime saturates others on processors without VNNI."""
    return _RANDOM.integers(-64, 64, shape).astype(np.int8)


def _scale(value: float) -> Array:
    return np.array(value, np.float32)


def _zero(value: int, dtype: Any = np.uint8) -> Array:
    return np.array(value, dtype)


_case("Gelu", _floats(3, 8))
_case("BiasGelu", _floats(3, 8), _floats(8))
_case("FastGelu", _floats(3, 8), _floats(8))
_case("QuickGelu", _floats(3, 8), alpha=1.5)
_case("FusedMatMul", _floats(2, 5, 3), _floats(2, 4, 5), transA=1, transB=1, alpha=0.5)
_case("FusedGemm", _floats(3, 5), _floats(5, 4), _floats(4), activation="LeakyRelu", activation_alpha=0.3)
_case("FusedConv", _floats(1, 3, 6, 6), _floats(4, 3, 3, 3), _floats(4), activation="Relu", pads=[1] * 4)
_case("SkipLayerNormalization", _floats(2, 3, 8), _floats(2, 3, 8), _floats(8), _floats(8), _floats(8))
_case("SkipSimplifiedLayerNormalization", _floats(2, 3, 8), _floats(2, 3, 8), _floats(8), _floats(8))
_case(
    "EmbedLayerNormalization",
    *(_RANDOM.integers(0, 2, (2, 3)).astype(np.int32) for _ in range(2)),
    *(_floats(rows, 8) for rows in (5, 6, 2)),
    _floats(8),
    _floats(8),
    np.array([[1, 1, 1], [1, 1, 0]], np.int32),
    outputs=2,
)
_case("Attention", _floats(2, 5, 8), _floats(8, 24), _floats(24), num_heads=2)
_case("Attention", _floats(2, 5, 8), _floats(8, 24), _floats(24), name="causal", num_heads=2, unidirectional=1)
_case(
    "Attention",
    _floats(2, 5, 8),
    _floats(8, 24),
    _floats(24),
    np.array([3, 5], np.int32),
    name="masked",
    num_heads=2,
)
_case("MultiHeadAttention", _floats(2, 5, 8), _floats(2, 7, 8), _floats(2, 7, 8), _floats(24), num_heads=4)
_case(
    "RotaryEmbedding",
    _floats(2, 3, 5, 8),
    np.arange(10, dtype=np.int64).reshape(2, 5),
    _floats(12, 4),
    _floats(12, 4),
)
_case(
    "GroupQueryAttention",
    _floats(1, 4, 32),
    _floats(1, 4, 16),
    _floats(1, 4, 16),
    np.zeros((1, 2, 0, 8), np.float32),
    np.zeros((1, 2, 0, 8), np.float32),
    np.array([3], np.int32),
    np.array(4, np.int32),
    outputs=3,
    num_heads=4,
    kv_num_heads=2,
    constants=(6,),
)
_case(
    "MatMulNBits",
    _floats(3, 32),
    _bytes(5, 2, 8),
    np.abs(_floats(10)),
    _bytes(5),
    K=32,
    N=5,
    bits=4,
    block_size=16,
    constants=(1, 2, 3),
)
for _op in ("QLinearAdd", "QLinearMul"):
    _case(
        _op, _bytes(2, 5), _scale(0.1), _zero(3), _bytes(5), _scale(0.2), _zero(7), _scale(0.5), _zero(9),
        constants=(1, 2, 4, 5, 6, 7),
    )  # fmt: skip
_NUMBERS = (_scale(0.1), _zero(128))
_AT = {"constants": (1, 2, 3, 4)}
_case("QLinearGlobalAveragePool", _bytes(2, 5, 7, 7), *_NUMBERS, _scale(0.02), _zero(120), **_AT)
_case("QLinearAveragePool", _bytes(2, 5, 7, 7), *_NUMBERS, _scale(0.05), _zero(99), kernel_shape=[3, 3], **_AT)
_case("QLinearSigmoid", _bytes(2, 9), *_NUMBERS, _scale(0.004), _zero(0), **_AT)
_case("QLinearLeakyRelu", _bytes(2, 9), *_NUMBERS, _scale(0.1), _zero(20), alpha=0.2, **_AT)
_case("QLinearSoftmax", _bytes(2, 9), *_NUMBERS, _scale(1 / 256), _zero(0), axis=1, **_AT)
CASES["QLinearSoftmax"].graph.node[0].attribute.append(helper.make_attribute("opset", 13))
_case(
    "QLinearConcat", _scale(0.1), _zero(3), _bytes(2, 5), _scale(0.1), _zero(3), _bytes(2, 4), _scale(0.07), _zero(30),
    axis=1, constants=(0, 1, 3, 4, 6, 7),
)  # fmt: skip
_case("DynamicQuantizeMatMul", _floats(4, 16), _signed(16, 5), _scale(0.1), _zero(3, np.int8), constants=(1, 2, 3))
_case(
    "MatMulIntegerToFloat", _bytes(4, 16), _signed(16, 5), _scale(0.1), _scale(0.2), _zero(3), _zero(4, np.int8),
    _floats(5), constants=(1,),
)  # fmt: skip
_case(
    "QAttention", _bytes(2, 5, 8), _signed(8, 24), _floats(24), _scale(0.01), _scale(0.01), None, _zero(128),
    _zero(0, np.int8), num_heads=2, constants=(1, 2, 3, 4, 6, 7),
)  # fmt: skip
_case("NhwcMaxPool", _bytes(1, 6, 6, 3), kernel_shape=[2, 2], strides=[2, 2])
_ML = {"domain": "ai.onnx.ml"}
for _kernel in ("LINEAR", "RBF", "POLY", "SIGMOID"):
    _vectors: dict[str, Any] = {
        "kernel_type": _kernel,
        "kernel_params": [0.3, 0.2, 2.0],
        "support_vectors": _RANDOM.normal(size=5 * 4).tolist(),
    }
    _case(
        "SVMRegressor",
        _floats(6, 4),
        name=f"regression {_kernel}",
        coefficients=_RANDOM.normal(size=5).tolist(),
        n_supports=5,
        rho=[0.4],
        **_vectors,
        **_ML,
    )
    _case(
        "SVMClassifier",
        _floats(6, 4),
        name=f"classes {_kernel}",
        outputs=2,
        classlabels_ints=[3, 5, 9],
        coefficients=_RANDOM.normal(size=2 * 5).tolist(),
        vectors_per_class=[2, 1, 2],
        rho=[0.1, -0.2, 0.3],
        **_vectors,
        **_ML,
    )


def _expected(name: str) -> list[Array]:
    model = CASES[name]
    results = by_onnxruntime(model, feed(model, INPUTS[name]))
    for value, result in zip(model.graph.output, results, strict=True):
        code = helper.np_dtype_to_tensor_dtype(result.dtype)
        value.CopyFrom(helper.make_tensor_value_info(value.name, code, result.shape))
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[list[Any], list[Array]]]]:
    """What the archive and ONNX Runtime answer, by case."""
    wanted = {name: _expected(name) for name in CASES}
    calls: Any = {name: (CASES[name], list(feed(CASES[name], INPUTS[name]).values())) for name in CASES}
    archive = JoinedArchive(calls, tmp_path_factory.mktemp("fused"))
    yield {name: (found, wanted[name]) for name, found in archive.results().items()}
    archive.close()


@pytest.mark.parametrize("name", CASES)
def test_an_archive_agrees_with_onnxruntime(name: str, results: Any) -> None:
    for found, wanted in zip(*results[name], strict=True):
        if wanted.dtype in (np.uint8, np.int8):
            # A step, where results are half way between two.
            assert found.shape == wanted.shape
            assert np.abs(found.numpy().astype(int) - wanted).max() <= 1
        else:
            same(found, wanted, 1e-5)
