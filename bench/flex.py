"""flex_attention in archives: blocked kernels with the model's functions inside, interleaved with whole matrices of
scores and with torch.compile.

python -m bench.flex [--length 2048] [--cases causal,window] [--threads 2] [--runs 7] [--memory 8192]

Batch 1, 8 heads of 64, fp32, dynamic length. `formula` is an archive without the pass that makes the blocked kernel.
Answers are compared. The last lines are how much the resident set of a process without torch grows at its peak in one
call of the length `--memory`, beyond the archive and the inputs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive

HEADS, DIM = 8, 64


def alibi(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return s + torch.exp2(-(h + 1.0)) * (j - i)


def capped(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return 20 * torch.tanh(s / 20)


def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def window(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (i >= j) & (i - j < 256)


# Score function, mask function.
CASES: dict[str, tuple[Callable[..., Tensor] | None, Callable[..., Tensor] | None]] = {
    "plain": (None, None),
    "causal": (None, causal),
    "window": (None, window),
    "alibi": (alibi, None),
    "alibi causal": (alibi, causal),
    "capped": (capped, None),
    "documents": (None, None),
}


class Attention(nn.Module):
    """One attention, which gets the tensors of its block mask."""

    def __init__(self, case: str, attend: Callable[..., Any] = flex_attention) -> None:
        super().__init__()
        self.case, self.attend = case, attend

    def forward(self, q: Tensor, k: Tensor, v: Tensor, document: Tensor, blocks: tuple[Tensor, ...]) -> Tensor:
        score, found = CASES[self.case][0], None
        mask = mask_of(self.case, document)
        if mask is not None:
            found = BlockMask.from_kv_blocks(*blocks, mask_mod=mask, seq_lengths=(q.shape[2], q.shape[2]))
        y: Tensor = self.attend(q, k, v, score_mod=score, block_mask=found)
        return y


def mask_of(case: str, document: Tensor) -> Callable[..., Tensor] | None:
    """The mask function of a case over documents."""
    if case != "documents":
        return CASES[case][1]
    return lambda b, h, i, j: (document[i] == document[j]) & (i >= j)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--memory", type=int, default=8192, help="the length for memory; 0: not measured")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        names = options.cases.split(",")
        print(f"{'case':14} {'aotpack':>9} {'formula':>9} {'compile':>9}  ms; ratios; error")
        for name in names:
            blocked = _archive(name, Path(folder), without=())
            print(_timed(name, blocked, _archive(name, Path(folder), ("pack-flex-attention",)), options), flush=True)
        for name in names if options.memory else ():
            for without in ((), ("pack-flex-attention",)):
                # The formula's memory is bounded by a shorter length.
                length = options.memory if not without else options.memory // 4
                grown = _growth(_path(name, Path(folder), without), length)
                print(
                    f"{name:14} {'formula' if without else 'aotpack'} at {length}: resident set grows by {grown:.0f} MB"
                )


def inputs(case: str, length: int) -> tuple[Any, ...]:
    q, k, v = (torch.randn(1, HEADS, length, DIM) for _ in range(3))
    document = torch.arange(length) * 5 // length
    mask = mask_of(case, document) or causal
    made = create_block_mask(mask, None, None, length, length, device="cpu")
    lists = made.kv_num_blocks, made.kv_indices, made.full_kv_num_blocks, made.full_kv_indices
    return q, k, v, document, tuple(t for t in lists if t is not None)


def _path(case: str, folder: Path, without: tuple[str, ...]) -> Path:
    return folder / f"{case.replace(' ', '_')}{'_formula' if without else ''}.aotpack"


def _archive(case: str, folder: Path, without: tuple[str, ...]) -> Path:
    path = _path(case, folder, without)
    length = aotpack.Dim("length", min=2, max=1 << 20)
    rows = aotpack.Dim("rows", min=1, max=1 << 13)
    blocks = ({2: rows}, {2: rows, 3: rows}) * 2
    dims = [{2: length}, {2: length}, {2: length}, {0: length}, blocks]
    program = aot_export(Attention(case).eval(), inputs(case, 300), dynamic_shapes=dims)
    build_archive(program, path, options=BuildOptions(without=without))
    return path


def _timed(case: str, blocked: Path, formula: Path, options: argparse.Namespace) -> str:
    ours, whole = (aotpack.load(path, num_threads=options.threads) for path in (blocked, formula))
    compiled = torch.compile(Attention(case).eval())
    arguments = inputs(case, options.length)
    engines: dict[str, Callable[[], Any]] = {
        "aotpack": lambda: ours(*arguments),
        "formula": lambda: whole(*arguments),
        "compile": lambda: compiled(*arguments),
    }
    answers: dict[str, Tensor] = {}
    for name, call in list(engines.items()):
        try:
            answers[name] = torch.as_tensor(call())
        except Exception as error:
            print(f"{case}: {name} fails: {type(error).__name__}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
            del engines[name]
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(options.runs):
        for name, call in engines.items():
            began = time.perf_counter()
            call()
            times[name].append(1e3 * (time.perf_counter() - began))
    medians = {name: statistics.median(values) for name, values in times.items()}
    error = max((answers[name] - answers["formula"]).abs().max().item() for name in ("aotpack", *engines))
    columns = " ".join(f"{medians[name]:9.2f}" if name in medians else f"{'-':>9}" for name in times | {"compile": 0})
    ratios = " ".join(f"{medians['aotpack'] / value:.2f}" for name, value in medians.items() if name != "aotpack")
    return f"{case:14} {columns}  {ratios}  {error:.1e}"


_GROWTH = """
import json, sys
import numpy as np
import aotpack
def resident(key):
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(key)) / 1024
length = int(sys.argv[2])
q = np.random.rand(3, 1, 8, length, 64).astype(np.float32)
def rest(length):
    document = np.arange(length) * 5 // length
    n = -(-length // 128)
    counts = np.arange(n, dtype=np.int32)
    indices = np.tile(counts, (1, 1, n, 1))
    # Those of a causal mask.
    diagonal = np.ascontiguousarray(indices.transpose(0, 1, 3, 2))
    return document, (np.ones((1, 1, n), np.int32), diagonal, counts[None, None], indices)
model = aotpack.load(sys.argv[1], num_threads=2)
model(*q[:, :, :, :300], *rest(300))
others = rest(length)
before = resident("VmRSS:")
open("/proc/self/clear_refs", "w").write("5")
model(*q, *others)
print(json.dumps(resident("VmHWM:") - before))
"""


def _growth(path: Path, length: int) -> float:
    command = [sys.executable, "-c", _GROWTH, str(path), str(length)]
    return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


if __name__ == "__main__":
    main()
