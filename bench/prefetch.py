"""What `load(prefetch=True)` saves: the time from before the load to the first result, and that of later calls.

    python -m bench.prefetch model.aotpack --threads 2

New processes with and without it take turns, with the archive in the page cache, or with `--cold` out of it. Inputs are
the archive's example.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.process import ROOT

MEASURED = """
import json, sys, time
import aotpack
from aotpack.archive import ArchiveReader
from aotpack.cli.arrays import golden_inputs
path, prefetch, threads = sys.argv[1], sys.argv[2] == "prefetch", int(sys.argv[3])
with ArchiveReader(path) as reader:
    inputs = golden_inputs(reader, reader.manifest.entries[0].goldens[0])
times = [time.perf_counter()]
model = aotpack.load(path, prefetch=prefetch, num_threads=threads)
context = model.context(num_threads=threads)
times.append(time.perf_counter())
for _ in range(6):
    context.run(inputs)
    times.append(time.perf_counter())
load, first, *later = [after - before for before, after in zip(times, times[1:])]
print(json.dumps([load, first, sorted(later)[2]]))
"""


def measured(path: Path, how: str, threads: int) -> list[float]:
    """Seconds of the load, the first call and later ones, in a new process."""
    command = [sys.executable, "-c", MEASURED, str(path), how, str(threads)]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    seconds: list[float] = json.loads(done.stdout)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.prefetch", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--cold", action="store_true", help="drop the archive from the page cache before each load")
    options = parser.parse_args()
    path = options.archive.resolve()
    path.read_bytes()  # into the page cache
    found: dict[str, list[list[float]]] = {"plain": [], "prefetch": []}
    for turn in range(options.turns):
        for how in list(found) if turn % 2 else list(found)[::-1]:
            if options.cold:
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            found[how].append(measured(path, how, options.threads))
    print(f"{'':10} {'load':>8} {'first':>8} {'later':>8}  medians, ms; load + first: median, least")
    for how, rows in found.items():
        medians = [statistics.median(column) * 1e3 for column in zip(*rows, strict=True)]
        sums = [load + first for load, first, _ in rows]
        line = " ".join(f"{value:8.1f}" for value in medians)
        print(f"{how:10} {line}  {statistics.median(sums) * 1e3:.1f}, {min(sums) * 1e3:.1f}")


if __name__ == "__main__":
    main()
