"""Compares calls as CUDA graphs with plain launches, and their durations, on a GPU.

    python -m tests.gpu.check_graphs FOLDER

FOLDER: archives of `tests.gpu.build_archives`. The inputs are those of the goldens, in other memory in every call.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import aotpack
from aotpack.archive import ArchiveReader, Entry
from aotpack.cli.arrays import golden_inputs
from aotpack.errors import AotpackError

_CALLS = 6
_TIMED = 300
Arrays = list[npt.NDArray[Any]]


def _on_device(runner: aotpack.Entry, entry: Entry, arrays: Arrays) -> list[Any]:
    inputs = zip(entry.inputs, arrays, strict=True)
    return [array if value.number else runner.to_device(array) for value, array in inputs]


def _results(model: aotpack.Model, entry: Entry, arrays: Arrays) -> list[Arrays]:
    """Of several calls in one context; all results are kept to the end."""
    context = model.context(seed=0)
    kept = [context.run(_on_device(context, entry, arrays)) for _ in range(_CALLS)]
    return [[np.asarray(result) for result in results] for results in kept]


def _microseconds(model: aotpack.Model, entry: Entry, arrays: Arrays) -> tuple[float, float]:
    """A call with its wait, and one of many that do not wait."""
    context = model.context()
    given = _on_device(context, entry, arrays)
    times = []
    for _ in range(_TIMED):
        start = time.perf_counter()
        context.run(given)
        times.append(time.perf_counter() - start)
    per_thread_stream = 2
    context = model.context(stream=per_thread_stream)
    for _ in range(2):
        context.synchronize()
        start = time.perf_counter()
        for _ in range(_TIMED):
            context.run(given)
        context.synchronize()
        end = time.perf_counter()
    return 1e6 * sorted(times)[_TIMED // 2], 1e6 * (end - start) / _TIMED


def _same(plain: Sequence[Arrays], graphs: Sequence[Arrays]) -> bool:
    return all(
        np.allclose(a.astype(np.complex128), b.astype(np.complex128), rtol=1e-3, atol=1e-3, equal_nan=True)
        for call in zip(plain, graphs, strict=True)
        for a, b in zip(*call, strict=True)
    )


def main(folder: str) -> int:
    """The exit code: 1 where an archive's answers differ."""
    failed = 0
    for path in sorted(Path(folder).glob("*.aotpack")):
        try:
            plain, graphs = (aotpack.load(path, device="cuda:0", graphs=count) for count in (0, 8))
        except AotpackError as error:
            print(f"{path.stem}: {error}")
            failed += 1
            continue
        with ArchiveReader(path) as reader:
            for entry in reader.manifest.entries:
                if not entry.goldens or entry.name != plain.entry_name:
                    continue
                arrays = golden_inputs(reader, entry.goldens[0])
                same = _same(_results(plain, entry, arrays), _results(graphs, entry, arrays))
                failed += not same
                before, after = _microseconds(plain, entry, arrays), _microseconds(graphs, entry, arrays)
                print(
                    f"{path.stem}: {'same' if same else 'DIFFERENT'}; with a wait {before[0]:.1f} -> {after[0]:.1f} us,"
                    f" without {before[1]:.1f} -> {after[1]:.1f} us"
                )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
