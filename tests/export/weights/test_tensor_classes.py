"""Weights that are tensors of a class of their own, as quantization libraries make them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import Tensor, nn

from tests.export.conftest import Build, assert_close

pytestmark = pytest.mark.torch

aten = torch.ops.aten


class Quantized(Tensor):
    """int8 numbers with a scale for each row; what torch computes with them it computes with their products."""

    @staticmethod
    def __new__(cls, numbers: Tensor, scale: Tensor) -> Quantized:
        return Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scale.dtype)  # type: ignore[attr-defined]

    def __init__(self, numbers: Tensor, scale: Tensor) -> None:
        self.numbers, self.scale = numbers, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["numbers", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Tensor], _: Any, size: Any, stride: Any) -> Quantized:
        return cls(inner["numbers"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (aten.detach.default, aten.alias.default, aten.clone.default):
            return cls(func(args[0].numbers), func(args[0].scale))
        if func is aten.t.default or func is aten.permute.default:
            raise NotImplementedError("the numbers are not transposed")

        def plain(x: Any) -> Any:
            return x.numbers.to(x.scale.dtype) * x.scale if isinstance(x, Quantized) else x

        return func(*pytree.tree_map(plain, args), **pytree.tree_map(plain, kwargs or {}))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            x, weight, *bias = args
            return x @ (weight.numbers.to(x.dtype) * weight.scale).t() + (bias[0] if bias else 0)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.relu(F.linear(x, self.first.weight, self.first.bias)), self.second.weight, self.second.bias)


def test_quantized_weights_of_a_class_of_their_own(build: Build) -> None:
    model = Model().eval()
    for layer in (model.first, model.second):
        scale = layer.weight.detach().abs().amax(1, keepdim=True) / 127
        numbers = torch.round(layer.weight.detach() / scale).to(torch.int8)
        layer.weight = nn.Parameter(Quantized(numbers, scale), requires_grad=False)
    archive = build(model, (torch.randn(3, 16),), dynamic_shapes={"x": {0: "rows"}})
    for rows in (3, 1, 7):
        x = torch.randn(rows, 16)
        assert_close(archive(x), model(x), 1e-5)
