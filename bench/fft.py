"""Fourier transforms of an archive against torch's, which are MKL's or pocketfft's: interleaved medians.

    python -m bench.fft [--threads N]

Prints a line per transform: milliseconds of both, and torch's time over the archive's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import aotpack
from aotpack.export import aot_export, build_archive

CASES: list[tuple[str, Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = [
    ("rfft, 512", torch.fft.rfft, (512,)),
    ("rfft, 400 frames of 400", torch.fft.rfft, (400, 400)),
    ("rfft, 64 of 4096", torch.fft.rfft, (64, 4096)),
    ("rfft, 64 of the prime 4093", torch.fft.rfft, (64, 4093)),
    ("rfft, 1048576", torch.fft.rfft, (1 << 20,)),
    ("rfft2, 8 images of 224 x 224", torch.fft.rfft2, (8, 224, 224)),
    ("fft2, 1024 x 1024", torch.fft.fft2, (1024, 1024)),
    ("fft of dim 0, 256 x 1000", lambda x: torch.fft.fft(x, dim=0), (256, 1000)),
]


def _seconds(call: Callable[[], object], at_least: float = 2e-3) -> float:
    """Of one call, in a run of as many as take `at_least` seconds."""
    count = 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            call()
        taken = time.perf_counter() - start
        if taken >= at_least or count >= 4096:
            return taken / count
        count *= 2


def main() -> None:
    """Measures every case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, function, sizes) in enumerate(CASES):
            if arguments.only not in name:
                continue
            x = torch.randn(sizes)
            path = Path(folder) / f"{number}.aotpack"
            build_archive(aot_export(_function(function), (x,)), path)
            model = aotpack.load(path, num_threads=arguments.threads)
            torch.testing.assert_close(torch.as_tensor(model(x)), _function(function)(x), rtol=1e-3, atol=1e-3)
            ours, theirs = [], []
            for _ in range(arguments.rounds):
                theirs.append(_seconds(lambda f=function, v=x: f(v)))
                ours.append(_seconds(lambda m=model, v=x: m(v)))
            mine, other = statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3
            print(f"{name:32} archive {mine:9.4f} ms   torch {other:9.4f} ms   ratio {other / mine:5.2f}")


def _function(call: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """With a signature, which torch's own functions lack."""
    return lambda x: call(x)


if __name__ == "__main__":
    main()
