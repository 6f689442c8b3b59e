"""Gradients of attention on a GPU, beside torch's.

    python -m bench.attention_backward [--json FILE]

For attentions of language and vision models: the time of the gradients of queries, keys and values by the kernels that
archives contain, that of the fastest backward of `scaled_dot_product_attention` (FlashAttention, cuDNN's, the
memory-efficient one), and the errors of both, of the greatest value of each gradient, with gradients in double
precision. Needs a GPU and Triton.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.cuda import attention, attention_backward
from bench.conv_backward import error, milliseconds
from bench.gpu_kernels import launch

aten = torch.ops.aten

Gradients = tuple[Tensor, ...]


@dataclass(frozen=True)
class Shape:
    """An attention of as many queries as keys."""

    batch: int
    heads: int
    key_heads: int
    length: int
    dim: int
    causal: bool
    dtype: torch.dtype = torch.bfloat16

    def __str__(self) -> str:
        heads = f"{self.heads}/{self.key_heads}"
        how = "causal" if self.causal else "all"
        return f"{self.batch:3} x {heads:5} x {self.length:5} x {self.dim:3}  {how:6}  {str(self.dtype)[6:]:8}"


SHAPES = (
    # GPT-2, BERT and ViT, Llama of 1B and 8B, heads of other sizes, single precision.
    *(Shape(8, 12, 12, 1024, 64, True), Shape(32, 12, 12, 128, 64, False), Shape(32, 12, 12, 197, 64, False)),
    *(Shape(4, 32, 8, 2048, 64, True), Shape(2, 32, 8, 4096, 128, True), Shape(4, 32, 32, 2048, 128, True)),
    *(Shape(4, 16, 16, 2048, 128, False), Shape(4, 16, 16, 1024, 80, True), Shape(4, 8, 8, 1024, 256, True)),
    Shape(4, 12, 12, 512, 64, True, torch.float32),
)


class Case:
    """Operands that lie in memory by position, as a projection computes them, and what forwards leave."""

    def __init__(self, shape: Shape) -> None:
        def operand(heads: int) -> Tensor:
            sizes = (shape.batch, shape.length, heads, shape.dim)
            return torch.randn(sizes, device="cuda", dtype=shape.dtype).transpose(1, 2)

        self.shape = shape
        self.operands = operand(shape.heads), operand(shape.key_heads), operand(shape.key_heads)
        self.dy = operand(shape.heads)
        self.how = (shape.causal, 1 / math.sqrt(shape.dim))
        self.forward = attention.attend_with_statistics(*self.operands, None, *self.how, launch)

    def ours(self) -> Gradients:
        return attention_backward.attention_gradients(self.dy, *self.operands, None, *self.forward, *self.how, launch)

    def peers(self) -> dict[str, Callable[[], Gradients]]:
        """The implementations in torch that can compute these gradients, by name."""
        found: dict[str, Callable[[], Gradients]] = {}
        for name, make in (("flash", self._flash), ("cudnn", self._cudnn), ("efficient", self._efficient)):
            try:
                backward = make()
                gradients = backward()
                torch.cuda.synchronize()
            except RuntimeError:
                continue
            # cuDNN's returns without an error what it does not compute, such as single precision.
            if all(gradient.isfinite().all() for gradient in gradients):
                found[name] = backward
        return found

    def _flash(self) -> Callable[[], Gradients]:
        causal, scale = self.how
        y, lse, *sizes, seed, unused, _ = aten._scaled_dot_product_flash_attention(
            *self.operands, 0.0, causal, False, scale=scale
        )
        arguments = (self.dy, *self.operands, y, lse, *sizes, 0.0, causal, seed, unused)
        return lambda: aten._scaled_dot_product_flash_attention_backward(*arguments, scale=scale)  # type: ignore[no-any-return]

    def _cudnn(self) -> Callable[[], Gradients]:
        causal, scale = self.how
        y, lse, *sizes, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(
            *self.operands, None, True, 0.0, causal, False, scale=scale
        )
        arguments = (self.dy, *self.operands, y, lse, seed, offset, None, *sizes, 0.0, causal)
        return lambda: aten._scaled_dot_product_cudnn_attention_backward(*arguments, scale=scale)  # type: ignore[no-any-return]

    def _efficient(self) -> Callable[[], Gradients]:
        causal, scale = self.how
        y, lse, seed, offset = aten._scaled_dot_product_efficient_attention(
            *self.operands, None, True, 0.0, causal, scale=scale
        )
        arguments = (self.dy, *self.operands, None, y, lse, seed, offset, 0.0, [True, True, True, False], causal)
        return lambda: aten._scaled_dot_product_efficient_attention_backward(*arguments, scale=scale)[:3]  # type: ignore[no-any-return]

    def error(self, gradients: Gradients) -> float:
        """The greatest of the first image, relative to the greatest value of each gradient."""
        causal, scale = self.how
        operands = [operand[:1].double().requires_grad_() for operand in self.operands]
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            y = torch.nn.functional.scaled_dot_product_attention(
                *operands, is_causal=causal, scale=scale, enable_gqa=True
            )
        wanted = torch.autograd.grad(y, operands, self.dy[:1].double())
        return max(error(found[:1], right) for found, right in zip(gradients, wanted, strict=True))


def measure(case: Case) -> dict[str, Any]:
    row: dict[str, Any] = {**asdict(case.shape), "dtype": str(case.shape.dtype)[6:]}
    peers = case.peers()
    row["peers_ms"] = {name: milliseconds(backward) for name, backward in peers.items()}
    best = min(row["peers_ms"], key=row["peers_ms"].__getitem__)
    row |= {"peer": best, "peer_ms": row["peers_ms"][best], "peer_error": case.error(peers[best]())}
    return row | {"ours_ms": milliseconds(case.ours), "ours_error": case.error(case.ours())}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), torch.__version__)
    rows = []
    for shape in SHAPES:
        torch.manual_seed(0)
        row = measure(Case(shape))
        rows.append(row)
        ratio = row["ours_ms"] / row["peer_ms"]
        errors = f"{row['ours_error']:.0e} {row['peer_error']:.0e}"
        others = " ".join(f"{name} {time:.3f}" for name, time in row["peers_ms"].items())
        print(f"{shape} | {row['ours_ms']:7.3f} {row['peer_ms']:7.3f} {ratio:5.2f} {errors} | {others}", flush=True)
        torch.cuda.empty_cache()
        if options.json:
            options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
