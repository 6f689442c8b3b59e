"""Models of one node, against ONNX Runtime or onnx's reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.importer import load_onnx

Array = NDArray[Any]
CONTRIB = "com.microsoft"

_OPSETS = {"": 21, CONTRIB: 1, "ai.onnx.ml": 3}


def one_node(
    op: str,
    inputs: Sequence[Any],
    *,
    outputs: int = 1,
    domain: str = "",
    constants: Sequence[int] = (),
    opset: int | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model with one node; None omits an input, `constants` are those that are initializers."""
    names = [f"i{i}" if value is not None else "" for i, value in enumerate(inputs)]
    results = [f"o{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    given = [(n, v, i in constants) for i, (n, v) in enumerate(zip(names, inputs, strict=True)) if v is not None]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v, c in given
        if not c
    ]
    fixed = [numpy_helper.from_array(v, n) for n, v, c in given if c]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=name) for name in results], fixed)
    versions = dict(_OPSETS) | ({} if opset is None else {domain: opset})
    imports = [helper.make_opsetid(name, version) for name, version in versions.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def feed(model: onnx.ModelProto, inputs: Sequence[Any]) -> dict[str, Array]:
    """The arrays of the model's inputs by name."""
    names = [value.name for value in model.graph.input]
    return {name: np.asarray(inputs[int(name[1:])]) for name in names}


def by_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results: list[Array] = session.run(None, inputs)
    return results


def imported(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[torch.Tensor]:
    """The results of the imported model, in torch."""
    tensors = [dtypes.from_numpy(value) for value in inputs.values()]
    with torch.no_grad():
        return list(load_onnx(model, tensors).module(*tensors).values())


def agree(
    op: str, inputs: Sequence[Any], *, tolerance: float = 1e-5, runtime: Any = by_onnxruntime, **how: Any
) -> None:
    """Compares a node with ONNX Runtime, within `tolerance` of the largest number."""
    model = one_node(op, inputs, **how)
    arrays = feed(model, inputs)
    expected = runtime(model, arrays)
    for value, result in zip(model.graph.output, expected, strict=True):
        code = helper.np_dtype_to_tensor_dtype(result.dtype)
        value.CopyFrom(helper.make_tensor_value_info(value.name, code, result.shape))
    for found, wanted in zip(imported(model, arrays), expected, strict=True):
        same(found, wanted, tolerance)


def same(found: torch.Tensor, wanted: Array, tolerance: float) -> None:
    exact = dtypes.from_numpy(wanted)
    assert (found.dtype, found.shape) == (exact.dtype, exact.shape)
    a, b = found.double(), exact.double()
    scale = max(1.0, b.nan_to_num(0, 0, 0).abs().max().item()) if b.numel() else 1.0
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance * scale, equal_nan=True)
