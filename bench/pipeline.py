"""Throughput of a pipeline of two stages on two cores against one context on one core.

python -m bench.pipeline [--model bert] [--seconds 2] [--rounds 9] [--folder FOLDER] [--json FILE]

On a machine that others use, the calls per second of CPU time tell what the pipeline costs besides the calls. The
model is divided by throughput. Windows of one context on one core, one context with two threads on two cores, and the
pipeline alternate; the ratio of each round counts, and their median is reported. Results of all three are compared
bit for bit, also with the archive of the whole model. The load of the machine is that before each round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import aotpack
from aotpack.runtime.cpus import process_cpus


def build(name: str, folder: Path) -> None:
    """The archives `whole` and `stages` of a model, and the arguments of a call."""
    import torch

    from aotpack.export import BuildOptions, Device, Topology, aot_export, build_archive, partition
    from bench.models import build as build_model

    module, args = build_model(name)
    with torch.no_grad():
        program = aot_export(module, args)
    devices = Topology((Device("first", 8 << 30), Device("second", 8 << 30)))
    stages = partition(program, devices, "cost-aware", objective="throughput")
    print(stages.to_text().split("\n  stage 1 to")[0], flush=True)
    options = BuildOptions(cache_dir=str(folder / "cache"), check=False)
    build_archive(program, folder / "whole.aotpack", options=options)
    build_archive(program, folder / "stages.aotpack", options=options, partitioning=stages)
    np.savez(folder / "args.npz", *[each.numpy() for each in args])


class Windows:
    """What is measured: each returns calls per second of a window."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._seconds = seconds
        self.per_cpu_second = 0.0  # calls of the last window
        cpus = process_cpus()
        if len(cpus) < 2:
            raise SystemExit("the bench needs two CPUs")
        self._all, self._one, self._groups = cpus, cpus[:1], ([cpus[0]], [cpus[1]])
        with np.load(folder / "args.npz") as saved:
            self._args = [saved[key] for key in saved.files]
        self._model = aotpack.load(folder / "stages.aotpack")
        self._context = self._model.context(num_threads=1)
        self._two_threads = self._model.context(num_threads=2)
        self._pipeline = self._model.pipeline(groups=self._groups)
        self._whole = aotpack.load(folder / "whole.aotpack").context(num_threads=1)

    def check(self) -> dict[str, bool]:
        """Whether results are equal bit for bit to those of one context."""
        wanted = self._context.run(self._args)
        others = {
            "pipeline": self._pipeline.submit_inputs(self._args).outputs(),
            "whole archive": self._whole.run(self._args),
        }
        return {
            name: all(np.array_equal(a, b, equal_nan=True) for a, b in zip(got, wanted, strict=True))
            for name, got in others.items()
        }

    def one_core(self) -> float:
        os.sched_setaffinity(0, self._one)
        try:
            return self._rate(lambda: self._context.run(self._args))
        finally:
            os.sched_setaffinity(0, self._all)

    def two_threads(self) -> float:
        return self._rate(lambda: self._two_threads.run(self._args))

    def pipeline(self) -> float:
        pending: deque[Any] = deque()

        def step() -> None:
            while len(pending) < self._pipeline.max_in_flight:
                pending.append(self._pipeline.submit_inputs(self._args))
            pending.popleft().outputs()

        rate = self._rate(step)
        while pending:
            pending.popleft().outputs()
        return rate

    def _rate(self, step: Callable[[], object]) -> float:
        for _ in range(3):
            step()
        count, start, cpu = 0, time.perf_counter(), time.process_time()
        while (now := time.perf_counter()) - start < self._seconds:
            step()
            count += 1
        self.per_cpu_second = count / (time.process_time() - cpu)
        return count / (now - start)


def measure(folder: Path, seconds: float, rounds: int) -> dict[str, Any]:
    """The medians of all rounds."""
    windows = Windows(folder, seconds)
    equal = windows.check()
    rates: dict[str, list[float]] = {"one_core": [], "two_threads": [], "pipeline": []}
    efficiency: dict[str, list[float]] = {name: [] for name in rates}
    loads = []
    for _ in range(rounds):
        loads.append(os.getloadavg()[0])
        for name, values in rates.items():
            values.append(getattr(windows, name)())
            efficiency[name].append(windows.per_cpu_second)
    ratios = {
        name: [each / one for each, one in zip(values, rates["one_core"], strict=True)]
        for name, values in rates.items()
    }
    return {
        "equal": equal,
        "calls_per_second": {name: statistics.median(values) for name, values in rates.items()},
        "calls_per_cpu_second": {name: statistics.median(values) for name, values in efficiency.items()},
        "ratio_to_one_core": {name: statistics.median(values) for name, values in ratios.items()},
        "all_ratios": {name: [round(each, 3) for each in values] for name, values in ratios.items()},
        "load": [round(each, 2) for each in loads],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bert")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a window")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="keeps the archives here, and uses those that are there")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        folder = options.folder or Path(room)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "args.npz").exists():
            build(options.model, folder)
        result = {"model": options.model, **measure(folder, options.seconds, options.rounds)}
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
