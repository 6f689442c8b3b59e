"""Embedding bags, convolutions of doubles and integers, and quantized products through archives: one archive each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.export.conftest import Build
from tests.export.operators.functions import agree
from tests.support.torch_version import needs_torch

aten = torch.ops.aten


def test_embedding_bags_with_their_backward(build: Build) -> None:
    def bags(table: Tensor, wide: Tensor, indices: Tensor, offsets: Tensor, factors: Tensor) -> tuple[Tensor, ...]:
        results: list[Tensor] = []
        for mode in (0, 1, 2):
            for weight in (table, wide):
                given = factors.to(weight.dtype) if mode == 0 else None
                y, *rest = aten._embedding_bag(weight, indices, offsets, False, mode, False, given, False, 2)
                back = aten._embedding_bag_backward(
                    y.sin(), indices, offsets, *rest, weight.shape[0], False, mode, False, given, 2
                )
                results += [y, *rest[:2], back]
        quick, *rest = aten._embedding_bag(table, indices, offsets)
        results.append(aten._embedding_bag_backward(quick, indices, offsets, *rest, 9, False, 0, False, None))
        results.append(aten._embedding_bag_per_sample_weights_backward(quick, table, indices, offsets, rest[0], 0))
        results.append(
            aten._embedding_bag_dense_backward(quick, indices, torch.zeros_like(indices), *rest[1:], 9, False, 0, None)
        )
        results.append(F.embedding_bag(indices.view(3, -1), wide, mode="max"))
        return tuple(results)  # fmt: skip

    def inputs() -> tuple[Tensor, ...]:
        table = torch.randn(9, 5)
        return table, table.double(), torch.randint(0, 9, (12,)), torch.tensor([0, 3, 3, 8]), torch.randn(12)

    agree(build, bags, inputs(), inputs(), 1e-5)


def test_embedding_bags_without_a_backward(build: Build) -> None:
    """All four results have eager's sizes in every mode, also where the last offset is the end of the last bag."""

    def bags(table: Tensor, indices: Tensor, offsets: Tensor) -> tuple[Tensor, ...]:
        results: list[Tensor] = []
        for mode in (0, 1, 2):
            for last in (False, True):
                for padding in (-1, 2):
                    options = (False, mode, False, None, last, padding)
                    y, bag_of, counts, sources = aten._embedding_bag_forward_only(table, indices, offsets, *options)
                    results += [y, bag_of, counts, sources] if mode else [y, bag_of, counts * 0, sources * 0]
        return tuple(results)

    def inputs() -> tuple[Tensor, ...]:
        return torch.randn(9, 5), torch.randint(0, 9, (12,)), torch.tensor([0, 3, 3, 12])

    agree(build, bags, inputs(), inputs(), 1e-5)


def test_convolutions_of_doubles_and_integers(build: Build) -> None:
    def convolved(x: Tensor, w: Tensor, i: Tensor, k: Tensor, t: Tensor) -> tuple[Tensor, ...]:
        y = F.conv2d(x, w, stride=2, padding=1, groups=2)
        options = ([0], [2, 2], [1, 1], [1, 1], False, [0, 0], 2, [True, True, False])
        gradients = aten.convolution_backward(y.sin(), x, w, *options)[:2]
        return (
            y,
            *gradients,
            F.conv_transpose2d(y, w, stride=2, groups=2, output_padding=1),
            F.conv2d(i, k, padding=1),
            torch.conv_tbc(t, t[:3, 0, :, None].expand(3, 4, 5), t[0, 0].sum().expand(5), 1),
            i[0, 0].to(torch.int8) @ i[0, 0].to(torch.int8),
        )

    def inputs() -> tuple[Tensor, ...]:
        x, w = torch.randn(2, 4, 9, 8, dtype=torch.double), torch.randn(6, 2, 3, 3, dtype=torch.double)
        i, k = torch.randint(-9, 9, (2, 2, 6, 6)), torch.randint(-9, 9, (3, 2, 3, 3))
        return x, w, i, k, torch.randn(7, 2, 4)

    agree(build, convolved, inputs(), inputs(), 1e-6)


@needs_torch(2, 12, "multiplies no uint8 by int8")
def test_quantized_linears(build: Build) -> None:
    """What torchao's configurations for int8 weights lower to, and PT2 exports with parameters of tokens."""
    quantized = torch.ops.quantized_decomposed

    def linears(x: Tensor, w: Tensor, scales: Tensor) -> tuple[Tensor, ...]:
        by_token = x.abs().amax(-1, keepdim=True).clamp_min(1e-5) / 127.5
        q = torch.clamp(torch.round(x / by_token), -128, 127).to(torch.int8)
        dynamic = torch._int_mm(q, w.t()).to(x.dtype) * by_token * scales
        # As torchao spells the product for a CPU.
        shifted = torch._int_mm((q.to(torch.int32) + 128).to(torch.uint8), w.t()) - 128 * w.sum(1, dtype=torch.int32)
        weights_only = F.linear(x, w.to(x.dtype)) * scales
        scale, zero = quantized.choose_qparams_per_token_asymmetric(x, torch.int8)
        tokens = quantized.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
        back = quantized.dequantize_per_token(tokens, scale, zero, -128, 127, torch.int8, torch.float32)
        packed = aten._weight_int8pack_mm(x.bfloat16(), w, scales.bfloat16())
        fake, mask = aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 3, -128, 127)
        return dynamic, shifted, weights_only, tokens, back, packed.float(), fake, mask

    def inputs() -> tuple[Tensor, ...]:
        w = torch.randint(-128, 128, (40, 64), dtype=torch.int8)
        return torch.randn(33, 64), w, torch.rand(40) * 0.01

    # Eager rounds products with packed weights once more.
    agree(build, linears, inputs(), inputs(), 1e-2)
