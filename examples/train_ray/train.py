"""Data-parallel training on Ray: workers with one archive, of which one is killed and replaced.

aotpack build examples/train_ray/model.py -o train.aotpack
python examples/train_ray/train.py train.aotpack [--workers 4] [--steps 60] [--kill 20]

The gradients are reduced by Ray's collectives. The same training by one context with the whole batch runs beside it:
its losses must be the same, up to rounding.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.util import collective
from sklearn.datasets import load_digits

import aotpack

BATCH = 64
TOLERANCE = 1e-5


@ray.remote(max_restarts=0)
class Worker:
    """A context. Calls run in the order of their submission, one at a time."""

    def __init__(self, archive: bytes, state: bytes | None) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train.aotpack"
            path.write_bytes(archive)
            self._context = aotpack.load(path, copy=True).context(num_threads=1)
            if state is not None:
                path.write_bytes(state)
                self._context.load_state(path)
        self._buckets: dict[str, np.ndarray] = {}

    def join(self, count: int, rank: int) -> None:
        """Becomes part of a group, and leaves the one before."""
        if collective.is_group_initialized("default"):
            collective.destroy_collective_group("default")
        collective.init_collective_group(count, rank, backend="gloo")

    def reduce(self, images: np.ndarray, labels: np.ndarray, share: float) -> float:
        """The first part of a step: gradients of this part of the batch, summed over all workers. Returns the loss."""
        result = self._context.entry("gradients")(images, labels)
        buckets = {name: np.asarray(bucket) * share for name, bucket in result["buckets"].items()}
        try:
            for bucket in buckets.values():
                collective.allreduce(bucket)
        except RuntimeError:
            # Only its neighbours notice that a worker is gone. Those wait for this one, and notice it in turn.
            collective.destroy_collective_group("default")
            raise
        self._buckets = buckets
        return float(result["loss"])

    def apply(self, rate: float) -> None:
        """The second part, when all workers have the sums."""
        self._context.entry("apply")(self._buckets, lr=rate)

    def alive(self) -> bool:
        return True

    def state(self) -> bytes:
        """Parameters, buffers, the optimizer's state, and the random generator."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state.safetensors"
            self._context.save_state(path)
            return path.read_bytes()


class Team:
    """Workers that train together. One that dies is replaced by one with the state of another."""

    def __init__(self, archive: Path, count: int) -> None:
        self._archive = ray.put(archive.read_bytes())
        self.workers = [Worker.remote(self._archive, None) for _ in range(count)]
        self.replaced = 0
        self._join()

    def step(self, images: np.ndarray, labels: np.ndarray, rate: float, kill: int | None = None) -> float:
        """The mean loss over the batch; with `kill`, this worker dies meanwhile."""
        parts = np.array_split(np.arange(len(images)), len(self.workers))
        shares = [len(rows) / len(images) for rows in parts]
        while True:
            work = zip(self.workers, parts, shares, strict=True)
            pending = [worker.reduce.remote(images[rows], labels[rows], share) for worker, rows, share in work]
            if kill is not None:
                ray.kill(self.workers[kill])
                kill = None
            losses, errors = _settled(pending)
            if not errors:
                break
            # The reduction fails in all workers if one is gone, and none has begun to apply: the step starts anew.
            self._replace(errors)
        # Now all have the sums; one that dies from here on gets the state of one that has applied them.
        _, errors = _settled([worker.apply.remote(rate) for worker in self.workers])
        for error in errors:
            if not isinstance(error, ray.exceptions.RayActorError):
                raise error
        if errors:
            self._replace(errors)
        return float(np.dot(losses, shares))

    def _replace(self, errors: list[Exception]) -> None:
        """Replaces dead workers; without one, the errors are others."""
        alive = [not _settled([worker.alive.remote()])[1] for worker in self.workers]
        if all(alive):
            raise errors[0]
        if not any(alive):
            raise RuntimeError("all workers are dead: start again from a checkpoint")
        state = self.workers[alive.index(True)].state.remote()
        self.workers = [
            worker if lives else Worker.remote(self._archive, state)
            for worker, lives in zip(self.workers, alive, strict=True)
        ]
        self.replaced += alive.count(False)
        self._join()

    def _join(self) -> None:
        ray.get([worker.join.remote(len(self.workers), rank) for rank, worker in enumerate(self.workers)])


def _settled(pending: list[Any]) -> tuple[list[Any], list[Exception]]:
    """The results and errors of calls, when all have ended."""
    results: list[Any] = []
    errors: list[Exception] = []
    for reference in pending:
        try:
            results.append(ray.get(reference))
        except ray.exceptions.RayError as error:
            errors.append(error)
    return results, errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--kill", type=int, default=20, help="the step in which a worker is killed; -1: none")
    options = parser.parse_args()
    pixels, digits = load_digits(return_X_y=True)
    images, labels = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8), digits.astype(np.int64)
    ray.init(num_cpus=options.workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    team = Team(options.archive, options.workers)
    one = aotpack.load(options.archive).context(num_threads=1)
    random = np.random.default_rng(0)
    losses, differences = [], []
    for step in range(options.steps):
        rows, rate = random.choice(len(images), BATCH, replace=False), 0.003 / (1 + step / 20)
        kill = options.workers // 2 if step == options.kill else None
        losses.append(team.step(images[rows], labels[rows], rate, kill))
        expected = float(one.entry("train_step")(images[rows], labels[rows], lr=rate)["loss"])
        differences.append(abs(losses[-1] - expected))
        if step % 10 == 0 or step + 1 == options.steps:
            print(f"step {step:3}: loss {losses[-1]:.6f}, of one worker {expected:.6f}", flush=True)
    ray.shutdown()
    report = {"losses": losses, "replaced": team.replaced, "difference": max(differences)}
    print(json.dumps(report))
    if not max(differences) <= TOLERANCE:
        raise SystemExit(f"the losses differ by {max(differences):.1e}")


if __name__ == "__main__":
    main()
