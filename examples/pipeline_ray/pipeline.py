"""Stages of a model on Ray: one actor a stage, requests streamed through them, against one process.

python examples/pipeline_ray/pipeline.py FOLDER [--whole ARCHIVE] [--requests 200]

FOLDER is what `aotpack split` or `aotpack.export.build_stages` writes. With --whole, the archive of all stages runs the
same requests in this process first, and the results must be equal bit for bit.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import ray

import aotpack
from aotpack.archive.stages import StagePlan, ValueSource, read_plan


@ray.remote
class StageActor:
    """Runs one stage. Calls of an actor run in the order of their submission, one at a time."""

    def __init__(self, archive: str, num_threads: int) -> None:
        self._context = aotpack.load(archive).context(num_threads=num_threads)

    def run(self, *inputs: Any) -> Any:
        """The outputs of the stage; ray returns one object for each if there are several."""
        outputs = [np.asarray(value) for value in self._context.run(list(inputs))]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def ready(self) -> bool:
        return True


class RayPipeline:
    """The stages of a plan as actors. Values between stages go from actor to actor, not through the driver."""

    def __init__(self, folder: Path, *, num_threads: int = 1, cpus_per_stage: float = 1) -> None:
        self.plan: StagePlan = read_plan(folder)
        if any(stage.mutated for stage in self.plan.stages):
            raise ValueError("an input that the model writes to does not come back from another process")
        place = StageActor.options(num_cpus=cpus_per_stage)
        self._actors = [
            place.remote(str((folder / stage.archive).resolve()), num_threads) for stage in self.plan.stages
        ]
        ray.get([actor.ready.remote() for actor in self._actors])

    def submit(self, inputs: list[Any]) -> list[Any]:
        """Starts a call; returns references to its results."""
        values: dict[ValueSource, Any] = {
            ValueSource(None, name): value for name, value in zip(self.plan.inputs, inputs, strict=True)
        }
        for index, (stage, actor) in enumerate(zip(self.plan.stages, self._actors, strict=True)):
            method = actor.run.options(num_returns=len(stage.outputs))
            made = method.remote(*[values[source] for source in stage.inputs])
            outputs = [made] if len(stage.outputs) == 1 else made
            values.update((ValueSource(index, name), value) for name, value in zip(stage.outputs, outputs, strict=True))
        return [values[source] for source in self.plan.results]


def stream(pipeline: RayPipeline, requests: list[list[Any]], in_flight: int) -> list[list[Any]]:
    """The results of all requests in order, with so many under way at most."""
    results, pending = [], deque[Any]()
    for request in requests:
        if len(pending) == in_flight:
            results.append(ray.get(pending.popleft()))
        pending.append(pipeline.submit(request))
    while pending:
        results.append(ray.get(pending.popleft()))
    return results


def example_requests(folder: Path, count: int) -> list[list[Any]]:
    """Random inputs of the entry; each dim has its smallest size that is at least 1, or 8 without an upper bound."""
    plan = read_plan(folder)
    rng = np.random.default_rng(0)
    specs: dict[str, Any] = {}
    dims: dict[str, int] = {}
    for stage in plan.stages:
        signature = aotpack.load(folder / stage.archive).signature
        dims |= {dim.name: max(dim.min, 1 if dim.max is not None else 8, dim.multiple_of) for dim in signature.dims}
        own = zip(stage.inputs, signature.inputs, strict=True)
        specs |= {source.name: spec for source, spec in own if source.stage is None}

    def make(spec: Any) -> Any:
        shape = [size if isinstance(size, int) else dims[size.dim] * size.mul + size.add for size in spec.shape]
        if spec.dtype.is_floating:
            return rng.standard_normal(shape).astype(spec.dtype.numpy_name)
        return rng.integers(0, 2, shape).astype(spec.dtype.numpy_name)

    return [[make(specs[name]) for name in plan.inputs] for _ in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--whole", type=Path, help="the archive of all stages")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1, help="per stage, and of the one process")
    parser.add_argument("--in-flight", type=int, default=0, help="default: two per stage")
    parser.add_argument("--rounds", type=int, default=3, help="both alternate; the best of each counts")
    options = parser.parse_args()
    requests = example_requests(options.folder, options.requests)
    plan = read_plan(options.folder)
    ray.init(num_cpus=len(plan.stages), include_dashboard=False, log_to_driver=False)
    pipeline = RayPipeline(options.folder, num_threads=options.threads)
    whole = aotpack.load(options.whole).context(num_threads=options.threads) if options.whole else None
    report: dict[str, Any] = {"stages": len(plan.stages), "requests": len(requests)}
    stream(pipeline, requests[:2], 2)
    for _ in range(options.rounds):
        if whole is not None:
            start = time.perf_counter()
            expected = [whole.run(request) for request in requests]
            rate = len(requests) / (time.perf_counter() - start)
            report["one_process_per_second"] = max(rate, report.get("one_process_per_second", 0))
        start = time.perf_counter()
        results = stream(pipeline, requests, options.in_flight or 2 * len(plan.stages))
        rate = len(requests) / (time.perf_counter() - start)
        report["ray_per_second"] = max(rate, report.get("ray_per_second", 0))
        if whole is not None:
            pairs = [
                (a, b) for got, want in zip(results, expected, strict=True) for a, b in zip(got, want, strict=True)
            ]
            report["equal"] = all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)
    print(json.dumps(report))
    ray.shutdown()
    if report.get("equal") is False:
        raise SystemExit("the results differ")


if __name__ == "__main__":
    main()
