"""Builds archives for GPUs, with the example calls and eager's answers as goldens.

    python -m tests.gpu.build_archives FOLDER [--target cuda-sm_90 ...] [NAME ...]

Needs no GPU. On a host with one, `aotpack verify` runs the goldens of each archive.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import aotpack
from aotpack.errors import AotpackError
from aotpack.export import aot_export, build_archive

Case = tuple[Any, tuple[Any, ...], Any]


def _perceptron(dtype: torch.dtype) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(dtype).eval()


class _Cache(nn.Module):
    """State that a call writes to."""

    keys: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(16, 64))
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        self.keys.index_copy_(0, places, self.linear(x))
        return self.keys.softmax(-1) @ x.T


def _batch(name: str) -> dict[str, Any]:
    return {name: {0: aotpack.Dim("batch", 1, 512)}}


def _perceptrons() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        args = (torch.randn(8, 64, dtype=dtype),)
        cases[f"mlp-{name}"] = (_perceptron(dtype), args, None)
        cases[f"mlp-{name}-dynamic"] = (_perceptron(dtype), args, _batch("input"))
    return cases


def _scatter(x: Tensor, i: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return x.scatter(1, i, v), x.index_add(0, i[:, 0], v), x.gather(1, i)


def _reductions(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(1), x.amax(0), x.std(), x.var(-1), x.argmax(1), x.logsumexp(1), x.sum()


def _casts(x: Tensor) -> tuple[Tensor, ...]:
    return x.half(), x.bfloat16(), x.int(), x.bool(), x.double()


def _products(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    return a @ b, b.mT @ a.mT, a @ c


def cases() -> dict[str, Callable[[], Case]]:
    """By name, a function that makes a model, its example inputs and its dynamic shapes."""
    randn = torch.randn
    perceptrons = {name: (lambda name=name: _perceptrons()[name]) for name in _perceptrons()}
    return {
        **perceptrons,
        "layer-norm": lambda: (nn.Sequential(nn.LayerNorm(512), nn.GELU()).eval(), (randn(64, 512),), _batch("input")),
        "group-norm": lambda: (nn.GroupNorm(2, 8).eval(), (randn(2, 8, 5, 5),), None),
        "softmax": lambda: (lambda x: x.softmax(-1), (randn(64, 1000),), None),
        "reductions": lambda: (_reductions, (randn(64, 3000),), None),
        "scans": lambda: (lambda x: (x.cumsum(1), x.cumprod(0)), (randn(8, 100),), None),
        "sort": lambda: (lambda x: x.sort(-1), (randn(8, 100),), None),
        "embedding": lambda: (nn.Embedding(100, 16), (torch.randint(0, 100, (2, 7)),), None),
        "scatter": lambda: (_scatter, (randn(4, 4), torch.randperm(4).expand(4, 4).clone(), randn(4, 4)), None),
        "casts": lambda: (_casts, (randn(8, 100),), None),
        "products": lambda: (_products, (randn(3, 40, 50), randn(3, 50, 60), randn(50, 70)), None),
        "state": lambda: (_Cache().eval(), (randn(2, 64), torch.tensor([3, 5])), None),
        "literals": lambda: (lambda x: x * torch.tensor([1.0, 2.0]).repeat(4), (randn(4, 8),), None),
        "number": lambda: (lambda x, n: F.silu(x) * n, (randn(4, 8), 3), {"x": {}, "n": torch.export.Dim.DYNAMIC}),
    }


def main() -> int:
    """Builds what the command line asks for; 1 where a build fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--target", action="append")
    options = parser.parse_intermixed_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, make in cases().items():
        if options.names and name not in options.names:
            continue
        torch.manual_seed(0)
        model, args, shapes = make()
        try:
            program = aot_export(model, args, dynamic_shapes=shapes)
            report = build_archive(
                program, options.folder / f"{name}.aotpack", targets=options.target or ["cuda-sm_80", "cuda-sm_90"]
            )
        except AotpackError as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr)
            continue
        print(f"{name}: {report.size} bytes in {sum(report.seconds.values()):.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
