"""Checks and times this project's Triton kernels for few rows against torch, on a CUDA GPU.

    python -m bench.gpu_kernels [--json FILE]

A time is the median of replays of a CUDA graph, in microseconds for one product or attention. A graph contains many
calls, whose weights and caches together are larger than the L2 cache. The parts of divided sums are added up by a
kernel of this file; in archives that is part of the operation that reads the result.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from aotpack.export.ops.cuda import attention, gemm
from aotpack.export.ops.cuda.launch import Launch, values

ROWS = (1, 2, 4, 16, 32, 128)
# Outputs and inputs of the layers of GPT-2, and of a Llama with 1B parameters.
GPT = ((2304, 768), (768, 768), (3072, 768), (768, 3072), (50257, 768))
LLAMA = ((3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192), (32000, 2048))
# Batch, heads, heads of keys, size of a head, keys.
CACHES = tuple(
    (batch, heads, key_heads, dim, keys)
    for heads, key_heads, dim in ((32, 8, 64), (32, 8, 128), (12, 12, 64))
    for batch, keys in ((1, 1024), (1, 4096), (1, 16384), (16, 1024))
)
# Together larger than the L2 cache, in bytes; calls in a graph at most.
_POOL, _MOST_CALLS = 160 << 20, 64
# Relative to the largest value.
_BOUNDS = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}

Call = Callable[[], Any]


@triton.jit
def _sum_parts(parts, out, count, SPLITS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(SPLITS):
        total += tl.load(parts + i * count + places, mask=places < count, other=0.0)
    tl.store(out + places, total.to(out.dtype.element_ty), mask=places < count)


def main() -> int:
    """1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows, wrong = [], 0
    print(f"{'case':58} {'error':>8} {'torch':>8} {'aotpack':>8} ratio")
    for row in itertools.chain(
        products(torch.bfloat16, GPT + LLAMA, ROWS),
        products(torch.bfloat16, GPT, (1, 4), transposed=True),
        products(torch.float32, GPT[:4], (1, 4, 16, 32, 128)),
        attentions(torch.bfloat16, CACHES),
        attentions(torch.float32, CACHES[:2]),
    ):
        rows.append(row)
        wrong += not row["correct"]
        values = f"{row['error']:8.1e} {row['torch']:8.2f} {row['aotpack']:8.2f} {row['aotpack'] / row['torch']:5.2f}"
        print(f"{row['case']:58} {values}{'' if row['correct'] else ' WRONG'}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows))
    return 1 if wrong else 0


def products(
    dtype: torch.dtype, layers: Sequence[tuple[int, int]], rows: Sequence[int], *, transposed: bool = False
) -> Iterator[dict[str, Any]]:
    """Linear layers, with weights [outputs, inputs] in memory, or transposed."""
    for (n, k), m in itertools.product(layers, rows):
        weights = [_random(dtype, n, k).div_(math.sqrt(k)).t() for _ in range(_copies(n * k * dtype.itemsize))]
        if transposed:
            weights = [weight.contiguous() for weight in weights]
        a = _random(dtype, m, k)
        ours = [_product(a, weight) for weight in weights]
        theirs: list[Call] = [lambda a=a, weight=weight: a @ weight for weight in weights]
        name = f"{m}x{n}x{k} {str(dtype)[6:]}{' transposed' * transposed}"
        yield _row(name, dtype, ours, theirs, a.double() @ weights[0].double())


def attentions(dtype: torch.dtype, caches: Sequence[tuple[int, ...]]) -> Iterator[dict[str, Any]]:
    """One position against caches: without a mask, and with masks that show all of the cache, and a quarter of it."""
    for (batch, heads, key_heads, dim, keys), shown in itertools.product(caches, (None, 1, 4)):
        count = _copies(2 * batch * key_heads * keys * dim * dtype.itemsize)
        q = _random(dtype, batch, heads, 1, dim)
        shape = (batch, key_heads, keys, dim)
        pairs = [(_random(dtype, *shape), _random(dtype, *shape)) for _ in range(count)]
        mask = None if shown is None else (torch.arange(keys, device="cuda") < keys // shown).view(1, 1, 1, keys)
        how = {"attn_mask": mask, "enable_gqa": heads != key_heads}
        ours = [_attention(q, k, v, mask) for k, v in pairs]
        theirs: list[Call] = [
            lambda q=q, k=k, v=v, how=how: scaled_dot_product_attention(q, k, v, **how) for k, v in pairs
        ]
        name = f"batch {batch} heads {heads}/{key_heads} dim {dim} keys {keys} {str(dtype)[6:]}"
        name += "" if shown is None else f" mask 1/{shown}"
        precise = (tensor.double() for tensor in (q, *pairs[0]))
        yield _row(name, dtype, ours, theirs, scaled_dot_product_attention(*precise, **how))


def _row(name: str, dtype: torch.dtype, ours: list[Call], theirs: list[Call], wanted: Tensor) -> dict[str, Any]:
    found = ours[0]()
    error = float((found.view(wanted.shape).double() - wanted).abs().max() / wanted.abs().max())
    again = bool(torch.equal(found.clone(), ours[0]()))
    times = {"torch": microseconds(theirs), "aotpack": microseconds(ours)}
    return {"case": name, "error": error, "correct": again and error <= _BOUNDS[dtype], **times}


def _random(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=dtype, device="cuda")


def _copies(nbytes: int) -> int:
    return max(2, min(_MOST_CALLS, -(-_POOL // nbytes)))


def _product(a: Tensor, b: Tensor) -> Call:
    """A product with the kernels that the rule chooses."""
    calls: list[Launch] = []
    out = torch.empty_like(gemm.product(a, b, None, 1.0, 0, _collect(calls)))

    def run() -> Tensor:
        _launch(calls)
        parts = calls[-1].arguments["out"]
        splits = calls[-1].arguments.get("SPLITS", 1)
        if splits == 1:
            return parts
        _sum_parts[(triton.cdiv(out.numel(), 512),)](parts, out, out.numel(), SPLITS=splits, BLOCK=512)
        return out

    return run


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Call:
    calls: list[Launch] = []
    out = attention.attend(q, k, v, mask, False, 1 / math.sqrt(q.shape[-1]), _collect(calls))

    def run() -> Tensor:
        _launch(calls)
        return out

    return run


def _collect(calls: list[Launch]) -> Callable[[Launch], Tensor]:
    def collect(call: Launch) -> Tensor:
        calls.append(call)
        result: Tensor = call.arguments["out"]
        return result

    return collect


def launch(call: Launch) -> Tensor:
    """Runs a kernel; returns its `out`."""
    call.kernel[call.grid](**values(call))
    result: Tensor = call.arguments["out"]
    return result


def _launch(calls: list[Launch]) -> None:
    for call in calls:
        launch(call)


def microseconds(calls: list[Call], replays: int = 9) -> float:
    """The median time of a call."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(events)) * 1e3 / len(calls)


if __name__ == "__main__":
    sys.exit(main())
