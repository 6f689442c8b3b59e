"""Replacing weights while calls go on: four threads call, another swaps between two sets of weights a hundred times.

    python -m bench.swap                          ResNet-18
    python -m bench.swap --model minilm --swaps 50

Every output must be exactly that of one set. Latency is measured three times, in turns: callers alone, callers beside a
thread that swaps, and callers beside a thread that packs the same weights by numpy into unused memory, which shows what
the work itself costs on a machine without a core to spare.
"""

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import aotpack
from bench import models
from bench.run import quantile


def other_weights(module: Any) -> dict[str, np.ndarray]:
    """A second set for a module: floating tensors scaled, so that statistics stay plausible."""
    return {name: (t * 1.01 if t.is_floating_point() else t).numpy() for name, t in module.state_dict().items()}


class Callers:
    """Threads that call a model until they are stopped, and check every output."""

    def __init__(self, model: aotpack.Model, args: list[np.ndarray], allowed: list[np.ndarray], count: int) -> None:
        self.latencies: list[float] = []
        self.wrong = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(model, args, allowed)) for _ in range(count)]

    def _run(self, model: aotpack.Model, args: list[np.ndarray], allowed: list[np.ndarray]) -> None:
        latencies, wrong = [], 0
        while not self._stop.is_set():
            began = time.perf_counter()
            result = model(*args)
            latencies.append(time.perf_counter() - began)
            wrong += not any(np.array_equal(result, output) for output in allowed)
        with self._lock:
            self.latencies += latencies
            self.wrong += wrong

    def __enter__(self) -> "Callers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def measure(name: str, *, callers: int, swaps: int, pause: float, rounds: int) -> dict[str, Any]:
    """The figures of one model."""
    from aotpack.export import BuildOptions, aot_export, build_archive

    module, example = models.build(name)
    args = [tensor.numpy() for tensor in example]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.aotpack"
        build_archive(aot_export(module, example), path, name=name, options=BuildOptions(updatable=True))
        model = aotpack.load(path, num_threads=1)
    sets = [{key: tensor.numpy() for key, tensor in module.state_dict().items()}, other_weights(module)]
    outputs = []
    for weights in sets:
        model.update_weights(weights)
        outputs.append(np.array(model(*args)))
    assert not np.array_equal(*outputs)
    times: dict[str, list[float]] = {"alone": [], "swapping": [], "copying": []}
    swap_times: list[float] = []
    wrong = 0
    for _ in range(rounds):
        for kind in times:
            with Callers(model, args, outputs, callers) as running:
                for step in range(swaps // rounds):
                    began = time.perf_counter()
                    if kind == "swapping":
                        model.update_weights(sets[step % 2])
                        swap_times.append(time.perf_counter() - began)
                    elif kind == "copying":
                        copies = [np.ascontiguousarray(array.T) for array in sets[step % 2].values()]
                        del copies
                    time.sleep(pause)
            times[kind] += running.latencies
            wrong += running.wrong
    result: dict[str, Any] = {"swaps": len(swap_times), "swap_ms": quantile(swap_times, 0.5) * 1e3, "wrong": wrong}
    for kind, values in times.items():
        result[kind] = {
            "calls": len(values),
            "p50_ms": quantile(values, 0.5) * 1e3,
            "p99_ms": quantile(values, 0.99) * 1e3,
        }
    result["p99_ratio"] = result["swapping"]["p99_ms"] / result["alone"]["p99_ms"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18", help="a name of bench.models")
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between swaps")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    row = measure(
        options.model, callers=options.callers, swaps=options.swaps, pause=options.pause, rounds=options.rounds
    )
    table = Table("callers beside", "calls", "p50, ms", "p99, ms", box=None)
    for kind in ("alone", "swapping", "copying"):
        table.add_row(kind, str(row[kind]["calls"]), f"{row[kind]['p50_ms']:.2f}", f"{row[kind]['p99_ms']:.2f}")
    console = Console()
    console.print(table)
    console.print(
        f"{row['swaps']} swaps of {row['swap_ms']:.1f} ms; p99 {row['p99_ratio']:.2f} times that of callers alone; "
        f"{row['wrong']} outputs of no set"
    )
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(row, indent=1))
    raise SystemExit(1 if row["wrong"] else 0)


if __name__ == "__main__":
    main()
