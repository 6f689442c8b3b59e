"""Fits the cost model (aotpack/costs) to measurements of the kernels on this machine.

    python -m bench.costs --processor zen4 -o build/bench/costs.json      # measures, and prints the errors
    python -m bench.costs --processor zen4 --data build/bench/costs.json --write
    python -m bench.costs --processor avx2 --target x86-64-v3              # what the fit is worth elsewhere

Each shape runs in each of its algorithms, with one thread and with two, as in a network (csrc/probe/algorithms.cpp).
The coefficients are those that make the sum of the squared relative errors least, none of them negative. A fifth of the
shapes is left out of a first fit, and its error printed: what the model says of shapes that it has not seen. So is the
error of the coefficients that are in the tree. `--write` writes the fit of all shapes to aotpack/costs/fitted.py,
as that of the class.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aotpack.costs import model
from aotpack.costs.fit import Fit
from aotpack.costs.fitted import FITS
from aotpack.costs.processors import PROCESSORS, Processor
from aotpack.costs.shapes import BlockShape, ConvShape, Shape

FITTED = Path(__file__).resolve().parent.parent / "aotpack" / "costs" / "fitted.py"
WEIGHTS = (4 << 20, 96 << 20)
_SHARE = 0.3  # of the samples: the quietest
_SECONDS = 16.0


def shapes() -> list[Shape]:
    """Sizes as networks have them: ResNets, VGG, DenseNets, U-Nets; MobileNets and EfficientNets."""
    found: list[Shape] = [
        ConvShape(images, channels, outputs, (size, size), (size, size))
        for images, channels, outputs, size in (
            *((1, c, c, s) for c, s in ((64, 56), (128, 28), (256, 14), (512, 7), (64, 112), (128, 56), (256, 28))),
            *((1, c, o, s) for c, o, s in ((64, 128, 56), (256, 512, 14), (512, 512, 14), (128, 32, 56), (128, 32, 7))),
            *((1, c, o, s) for c, o, s in ((16, 16, 64), (32, 32, 40), (8, 32, 48), (48, 96, 24), (320, 320, 32))),
            *((1, c, c, s) for c, s in ((640, 16), (32, 112), (16, 112), (96, 14), (192, 10), (24, 28), (256, 5))),
            (8, 64, 64, 28), (4, 256, 256, 14), (8, 512, 512, 7), (2, 32, 64, 20), (1, 3, 32, 40), (1, 32, 32, 3),
            (2, 32, 32, 4), (1, 64, 64, 5), (1, 512, 512, 3), (1, 24, 16, 9),
            (1, 64, 64, 224), (1, 128, 128, 112), (1, 256, 256, 56), (1, 512, 512, 28), (8, 64, 64, 56),
            (8, 128, 128, 28), (8, 256, 256, 14), (8, 128, 32, 28),
        )
    ]  # fmt: skip
    for c, channels, outputs, size, kernel, stride in (
        (0, 32, 16, 112, 3, 1), (16, 96, 24, 112, 3, 2), (24, 144, 24, 56, 3, 1), (24, 144, 32, 56, 3, 2),
        (32, 192, 32, 28, 3, 1), (32, 192, 64, 28, 3, 2), (64, 384, 64, 14, 3, 1), (96, 576, 96, 14, 3, 1),
        (160, 960, 160, 7, 3, 1), (24, 144, 0, 56, 5, 2), (40, 240, 40, 28, 5, 1), (0, 64, 64, 56, 3, 1),
        (0, 128, 128, 56, 3, 1), (32, 192, 0, 56, 3, 1), (16, 64, 16, 48, 3, 1), (48, 288, 48, 40, 5, 1),
        (64, 256, 64, 64, 3, 1), (24, 96, 24, 80, 3, 1), (0, 256, 256, 28, 3, 1), (40, 120, 40, 64, 5, 1),
    ):  # fmt: skip
        out = (size - 1) // stride + 1
        pair = (kernel, kernel), (stride, stride), (kernel // 2, kernel // 2), (1, 1)
        ends = c or channels, channels, outputs or channels
        found.append(BlockShape(4, 1, *ends, (size, size), (out, out), *pair, c > 0, outputs > 0))
    return found


def measure(target: str, threads: Iterable[int]) -> list[dict[str, Any]]:
    """Rows of `shape` (the index), `algorithm`, `threads`, `weights` and `seconds`."""
    from aotpack.building.cache import BuildCache
    from aotpack.building.compiler import find_compiler
    from aotpack.export.backends.backend import Tools
    from aotpack.export.backends.cpu.probe import probe_program, time_shapes

    program = probe_program(target, frozenset(), Tools(BuildCache(), find_compiler(None)))
    every, rows = shapes(), []
    for count in threads:
        for weights in WEIGHTS:
            found = time_shapes(program, every, threads=count, seconds=_SECONDS, weights=weights)
            for shape, samples in found.items():
                for algorithm, times in samples.items():
                    least = sorted(times)[: max(1, int(_SHARE * len(times)))]
                    seconds = sum(least) / len(least)
                    rows.append({"shape": every.index(shape), "algorithm": algorithm, "threads": count,
                                 "weights": weights, "seconds": seconds})  # fmt: skip
    return rows


def fit(rows: list[dict[str, Any]], processor: Processor) -> dict[str, float]:
    """Coefficients that are not negative, by coordinate descent on the squares of the relative errors."""
    every = shapes()
    found = [
        model.terms(every[row["shape"]], row["algorithm"], processor, row["threads"], row["weights"]) for row in rows
    ]
    names = sorted({name for each in found for name in each})
    matrix = np.array(
        [[each.get(name, 0.0) / row["seconds"] for name in names] for each, row in zip(found, rows, strict=True)]
    )
    # A term that this data does not tell counts for what the documented rate says: weakly drawn to 1.
    pull = 0.02 * np.linalg.norm(matrix, axis=0).mean() ** 2 / len(names)
    gram = matrix.T @ matrix + pull * np.eye(len(names))
    aim = matrix.sum(axis=0) + pull
    x = np.ones(len(names))
    for _ in range(20000):
        for i in range(len(names)):
            x[i] = max(0.0, x[i] + (aim[i] - gram[i] @ x) / gram[i, i])
    return {name: round(float(value), 4) for name, value in zip(names, x, strict=True)}


def errors(
    rows: Iterable[Mapping[str, Any]], processor: Processor, coefficients: Mapping[str, float]
) -> dict[str, list[float]]:
    """Relative errors of predictions, by algorithm."""
    every, found = shapes(), dict[str, list[float]]()
    for row in rows:
        at = row["algorithm"], processor, row["threads"], row["weights"]
        predicted = model.weighted(model.terms(every[row["shape"]], *at), coefficients)
        found.setdefault(row["algorithm"], []).append(predicted / row["seconds"] - 1)
    return found


def decisions(rows: list[dict[str, Any]], processor: Processor, coefficients: Mapping[str, float]) -> tuple[int, int]:
    """How many choices of the model are the measured ones, or cost less than 5 %, and how many there are."""
    every, right, total = shapes(), 0, 0
    times = {(r["shape"], r["threads"], r["weights"], r["algorithm"]): r["seconds"] for r in rows}
    for number, threads, weights in {key[:3] for key in times}:
        shape = every[number]
        measured = [times[number, threads, weights, name] for name in shape.algorithms]
        said = [
            model.weighted(model.terms(shape, name, processor, threads, weights), coefficients)
            for name in shape.algorithms
        ]
        total += 1
        right += measured[int(np.argmin(said))] < 1.05 * min(measured)
    return right, total


def _print(title: str, found: Mapping[str, list[float]]) -> None:
    print(title)
    for algorithm, each in found.items():
        size = np.abs(each)
        tenth = np.quantile(size, 0.9)
        print(f"  {algorithm:10} mean {size.mean():6.1%}  90 % below {tenth:6.1%}  worst {size.max():6.1%}")


def _write(name: str, fit: Fit) -> None:
    fits = {**FITS, name: fit}
    lines = [
        f'    "{each}": Fit(\n        "{fits[each].measured_on}",\n        {fits[each].measurements},\n        {{\n'
        + "".join(f'            "{term}": {value},\n' for term, value in fits[each].coefficients.items())
        + "        },\n    ),\n"
        for each in (processor.name for processor in PROCESSORS)
        if each in fits
    ]
    FITTED.write_text(
        '"""What the terms of `model.py` count for, by class of processors. '
        'Written by `python -m bench.costs --write`."""\n\n'
        "from aotpack.costs.fit import Fit\n\nFITS = {\n" + "".join(lines) + "}\n"
    )


def main(arguments: list[str] | None = None) -> int:
    from aotpack.targets.host import host_processor

    parser = argparse.ArgumentParser(prog="python -m bench.costs", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--processor", required=True, choices=[each.name for each in PROCESSORS], help="this machine's")
    parser.add_argument("--target", default="x86-64-v4")
    parser.add_argument("--threads", default="1,2", help="comma-separated")
    parser.add_argument("--data", type=Path, help="measurements of an earlier run, instead of new ones")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/bench/costs.json"), help="%(default)s")
    parser.add_argument("--write", action="store_true", help="write aotpack/costs/fitted.py")
    options = parser.parse_args(arguments)
    processor = next(each for each in PROCESSORS if each.name == options.processor)
    if options.data is not None:
        document = json.loads(options.data.read_text())
    else:
        rows = measure(options.target, [int(count) for count in options.threads.split(",")])
        document = {"processor": host_processor(), "class": processor.name, "target": options.target, "rows": rows}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(document) + "\n")
    rows = document["rows"]
    seen = [row for row in rows if row["shape"] % 5 != 2]
    unseen = [row for row in rows if row["shape"] % 5 == 2]
    _print("shapes left out of the fit:", errors(unseen, processor, fit(seen, processor)))
    _print("all shapes, by the coefficients in the tree:", errors(rows, processor, model.coefficients_of(processor)))
    right, total = decisions(rows, processor, model.coefficients_of(processor))
    print(f"choices: {right} of {total} are the fastest, or within 5 % of it")
    coefficients = fit(rows, processor)
    _print("all shapes, fitted:", errors(rows, processor, coefficients))
    right, total = decisions(rows, processor, coefficients)
    print(f"choices: {right} of {total} are the fastest, or within 5 % of it")
    for name, value in coefficients.items():
        print(f"  {name:20} {value:8.4f}")
    if options.write:
        _write(processor.name, Fit(f"{document['processor']}, {document['target']}", len(rows), coefficients))
    return 0


if __name__ == "__main__":
    sys.exit(main())
