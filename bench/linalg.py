"""Linear algebra of archives against torch's LAPACK: `python -m bench.linalg`.

One thread each. Medians of calls that take turns, as a ratio: below 1 the archive is faster.
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
from aotpack.export import BuildOptions, aot_export, build_archive

OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "inv": torch.linalg.inv,
    "cholesky": lambda a: torch.linalg.cholesky(a),
    "qr": lambda a: torch.linalg.qr(a)[1],
    "eigvalsh": torch.linalg.eigvalsh,
    "eigh": lambda a: torch.linalg.eigh(a)[0],
    "svd": lambda a: torch.linalg.svd(a)[1],
    "eig": lambda a: torch.linalg.eig(a)[0].real,
    "matrix_exp": torch.linalg.matrix_exp,
}
SHAPES = {"256 of 8 x 8": (256, 8, 8), "64 x 64": (1, 64, 64), "512 x 512": (1, 512, 512)}


def _ratio(archive: Callable[..., object], eager: Callable[..., object], a: torch.Tensor, seconds: float) -> float:
    times: tuple[list[float], list[float]] = ([], [])
    archive(a), eager(a)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for which, call in enumerate((archive, eager)):
            start = time.perf_counter()
            call(a)
            times[which].append(time.perf_counter() - start)
    return statistics.median(times[0]) / statistics.median(times[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each operator and shape")
    seconds: float = parser.parse_args().seconds
    torch.set_num_threads(1)
    print(f"{'':12}" + "".join(f"{shape:>16}" for shape in SHAPES))
    with tempfile.TemporaryDirectory() as folder:
        for name, operator in OPERATORS.items():
            row = []
            for shape in SHAPES.values():
                a = torch.randn(shape)
                a = a @ a.mT / shape[-1] + torch.eye(shape[-1])
                path = Path(folder) / "model.aotpack"
                build_archive(aot_export(operator, (a,)), path, options=BuildOptions())
                with torch.no_grad():
                    row.append(_ratio(aotpack.load(path, num_threads=1), operator, a, seconds))
            print(f"{name:12}" + "".join(f"{ratio:16.2f}" for ratio in row), flush=True)


if __name__ == "__main__":
    main()
