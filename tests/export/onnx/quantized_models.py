"""Builds quantized ONNX models with QuantizeLinear and DequantizeLinear around operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.export.onnx.one_node import CONTRIB, Array

RANDOM = np.random.default_rng(17)


class Net:
    """A graph under construction. Methods return names of values.

    Args:
        shape: of the input `x`, fp32.
        dtype: of quantized activations.
    """

    def __init__(self, *shape: Any, dtype: Any = np.uint8) -> None:
        self.input = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, list(shape))
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], domain=domain, **attributes))
        return name

    def scale(self, scale: float, zero: int | None = None) -> tuple[str, str]:
        if zero is None:
            zero = 0 if self.dtype == np.int8 else 117
        return self.constant(np.float32(scale)), self.constant(self.dtype(zero))

    def quantized(self, x: str, scale: float = 0.05, zero: int | None = None) -> str:
        """What is quantized and dequantized again."""
        numbers = self.scale(scale, zero)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *numbers), *numbers)

    def weight(
        self, *shape: int, axis: int | None = 0, dtype: Any = np.int8, zero: int = 0, extreme: bool = False
    ) -> str:
        """A dequantized weight; `axis` is that of its scales, None for one scale."""
        info = np.iinfo(dtype)
        values = RANDOM.integers(info.min, info.max + 1, shape)
        if extreme:
            values = np.where(values < 0, info.min, info.max)
        count = 1 if axis is None else shape[axis]
        scales = (RANDOM.random(count) * 0.01 + 0.002).astype(np.float32)
        zeros = np.full(count, zero, dtype)
        if axis is None:
            scales, zeros = scales.reshape(()), zeros.reshape(())
        how = {} if axis is None else {"axis": axis}
        return self.node(
            "DequantizeLinear",
            self.constant(values.astype(dtype)),
            self.constant(scales),
            self.constant(zeros),
            **how,
        )

    def bias(self, count: int) -> str:
        return self.constant(RANDOM.normal(size=count).astype(np.float32))

    def model(self, *outputs: str) -> onnx.ModelProto:
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", [self.input], results, self.constants)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
        model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=8))
        # Names alone would leave the types of contrib operators open.
        for value in model.graph.output:
            if not value.HasField("type"):
                value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        return model


def example(*shape: int, scale: float = 2.0) -> Array:
    return (RANDOM.normal(size=shape) * scale).astype(np.float32)
