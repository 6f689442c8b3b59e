"""The pass that reads quantized weights in place of dequantized copies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from aotpack.export import ops
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.cpu.use_quantized_weight import use_quantized_weight
from tests.export.pass_checks import count, run
from tests.export.quantized_weights import FORMS, Quantized

N, K, GROUP = 136, 256, 32


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [(K,), (1, K), (2, 3, K)])
def test_every_form_is_read_as_it_is_stored(form: str, sizes: tuple[int, ...]) -> None:
    make, bits = FORMS[form]
    after = run(make(N, K, GROUP), (torch.randn(sizes),), *COMMON, use_quantized_weight, tolerance=1e-4)
    assert count(after, ops.quantized_linear) == 1
    assert count(after, torch.ops.aten.mul.Tensor, torch.ops.aten.sub.Tensor) == 0
    (node,) = (n for n in after.graph.nodes if n.target is ops.quantized_linear)
    _, weight, scale, *_ = node.args
    assert weight.meta["val"].shape == (-(-N // 32), K, 4 * bits)
    assert scale.meta["val"].shape[1] == (1 if form in ("int8 by channel", "uint8 with zero points") else K // GROUP)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_activations_of_16_bits(dtype: torch.dtype) -> None:
    model = FORMS["nibbles"][0](N, K, GROUP)
    model.bias = model.bias.to(dtype)
    after = run(model, (torch.randn(3, K, dtype=dtype),), *COMMON, use_quantized_weight, tolerance=3e-2)
    assert count(after, ops.quantized_linear) == 1


def _table(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return torch.linspace(-1, 1, 256, dtype=x.dtype)[w.to(torch.int64)] * scale.to(x.dtype)


def _wide(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return w.to(torch.int16).mul(3).to(x.dtype) * scale.to(x.dtype)


def _wrapping(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return (w - 8).to(x.dtype) * scale.to(x.dtype)


def _squared(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return w.to(x.dtype) ** 2 * scale.to(x.dtype)


@pytest.mark.parametrize("dequantize", [_table, _wide, _wrapping, _squared])
@pytest.mark.parametrize("scales", [(N, 1), (N, K), (1, K)])
def test_other_weights_stay_what_they_are(dequantize: Any, scales: tuple[int, ...]) -> None:
    model = Quantized(dequantize, None, torch.randint(0, 256, (N, K), dtype=torch.uint8), torch.rand(scales) / 100)
    after = run(model, (torch.randn(2, K),), *COMMON, use_quantized_weight, tolerance=1e-4)
    assert count(after, ops.quantized_linear) == 0


def test_a_scale_along_the_sum_is_no_scale_of_groups() -> None:
    def dequantize(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        return w.to(x.dtype) * scale.to(x.dtype)

    model = Quantized(dequantize, None, torch.randint(0, 256, (N, K), dtype=torch.uint8), torch.rand(1, K))
    after = run(model, (torch.randn(2, K),), *COMMON, use_quantized_weight, tolerance=1e-4)
    assert count(after, ops.quantized_linear) == 0


class Chosen(torch.nn.Module):
    """A product with a weight of groups that an index chooses, or one for the scales and one for the zero points."""

    def __init__(self, index: Tensor, *, same: bool = True) -> None:
        super().__init__()
        self.register_buffer("w", torch.randint(-128, 128, (K, N), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(K // GROUP, N) / 100)
        self.register_buffer("zeros", torch.randint(-8, 8, (K // GROUP, N), dtype=torch.int8))
        self.register_buffer("index", index)
        self.register_buffer("other", index.clone() if same else index.flip(0))
        self.same = same

    def forward(self, x: Tensor) -> Tensor:
        zeros = self.zeros[self.index if self.same else self.other]
        return x @ ((self.w.to(x.dtype) - zeros.to(x.dtype)) * self.scales[self.index].to(x.dtype))


@pytest.mark.parametrize(
    "index",
    [
        torch.arange(K) // GROUP,
        (torch.arange(K) // GROUP)[torch.randperm(K)],
        torch.randint(0, K // GROUP, (K,), dtype=torch.int32),
        torch.randint(-(K // GROUP), K // GROUP, (K,)),
        torch.full((K,), 3),
    ],
    ids=["plain", "ordered", "unequal", "from the end", "one group"],
)
def test_any_index_may_choose_groups(index: Tensor) -> None:
    after = run(Chosen(index), (torch.randn(2, 3, K),), *COMMON, use_quantized_weight, tolerance=1e-4)
    assert count(after, ops.quantized_linear) == 1


def test_what_two_indices_choose_stays() -> None:
    model = Chosen(torch.randint(0, K // GROUP, (K,)), same=False)
    after = run(model, (torch.randn(2, K),), *COMMON, use_quantized_weight, tolerance=1e-4)
    assert count(after, ops.quantized_linear) == 0


def test_what_an_index_chooses_along_the_other_dim_is_a_scale() -> None:
    def dequantize(x: Tensor, w: Tensor, scale: Tensor, index: Tensor) -> Tensor:
        return w.to(x.dtype) * scale[index].to(x.dtype)

    stored = (torch.randint(0, 256, (K, K), dtype=torch.uint8), torch.rand(8, 1), torch.randint(0, 8, (K,)))
    after = run(
        Quantized(dequantize, None, *stored), (torch.randn(2, K),), *COMMON, use_quantized_weight, tolerance=1e-4
    )
    (node,) = (n for n in after.graph.nodes if n.target is ops.quantized_linear)
    assert node.args[4] is None


def test_an_index_that_moves_elsewhere_chooses_no_groups() -> None:
    def dequantize(x: Tensor, w: Tensor, scale: Tensor, index: Tensor) -> Tensor:
        return w.to(x.dtype) * scale[index].flip(0).t().to(x.dtype)

    stored = (torch.randint(0, 256, (N, K), dtype=torch.uint8), torch.rand(8, N), torch.randint(0, 8, (K,)))
    after = run(
        Quantized(dequantize, None, *stored), (torch.randn(2, K),), *COMMON, use_quantized_weight, tolerance=1e-4
    )
    assert count(after, ops.quantized_linear) == 0
