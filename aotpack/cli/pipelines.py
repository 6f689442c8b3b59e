"""`aotpack bench --pipeline`: calls per second of the stages of an entry on threads of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from aotpack.runtime import Model
    from aotpack.runtime.pipeline import Call, Pipeline

_SECONDS = 2.0
_LEAST = 10


def bench_pipeline(
    archive: Path,
    model: Model,
    entry: str | None,
    sizes: dict[str, int],
    cpus: list[str] | None,
    threads: int | None,
    iterations: int | None,
    warmup: int,
    *,
    as_json: bool,
) -> None:
    """Measures a pipeline, and one context before it; prints both.

    Raises:
        AotpackError: the entry has no pipeline with these CPUs.
    """
    from aotpack.cli.common import format_seconds, print_json, stdout_console
    from aotpack.cli.profiling import call_inputs
    from aotpack.cli.terminal import make_table
    from aotpack.errors import InputError
    from aotpack.runtime.pipeline import Worker

    runner = model.entry(entry) if entry else model
    arrays, source = call_inputs(archive, runner, sizes)
    given: list[Any] = list(arrays)
    stages = runner._num_stages
    if cpus and len(cpus) % stages:
        raise InputError(f"--cpus must be given once for each of the {stages} stages, got {len(cpus)}")
    groups: list[str | None] = [*cpus] if cpus else [None] * stages
    workers = [Worker(i % stages, group, threads or 0) for i, group in enumerate(groups)]
    context = model.context(num_threads=threads).entry(runner.entry_name)
    one = _rate(lambda: context.run(given), iterations, warmup)
    with model.pipeline(runner.entry_name, workers=workers) as pipeline:
        many = _rate(_stepper(pipeline, given), iterations, warmup)
        in_flight = pipeline.max_in_flight
    result = {
        "archive": archive,
        "entry": runner.entry_name,
        "target": runner.target,
        "stages": stages,
        "workers": [{"stage": each.stage, "cpus": each.cpus, "threads": each.num_threads or None} for each in workers],
        "max_in_flight": in_flight,
        "inputs_from": source,
        "context_calls_per_second": one,
        "calls_per_second": many,
        "speedup": many / one,
    }
    if as_json:
        print_json(result)
        return
    table = make_table("", "calls/s", "seconds/call")
    table.add_row("one context", f"{one:.1f}", format_seconds(1 / one))
    table.add_row(f"pipeline of {stages} stages", f"{many:.1f}", format_seconds(1 / many))
    console = stdout_console()
    console.print(table)
    console.print(f"{len(workers)} workers, {in_flight} calls under way; inputs ({source})", style="dim")


def _stepper(pipeline: Pipeline, given: list[Any]) -> Callable[[], object]:
    """A function that ends one call, with as many under way as fit."""
    from collections import deque

    pending: deque[Call] = deque()

    def step() -> object:
        while len(pending) < pipeline.max_in_flight:
            pending.append(pipeline.submit_inputs(given))
        return pending.popleft().outputs()

    return step


def _rate(step: Callable[[], object], iterations: int | None, warmup: int) -> float:
    """Steps per second."""
    import time

    for _ in range(max(1, warmup)):
        step()
    count, start = 0, time.perf_counter()
    while True:
        step()
        count += 1
        seconds = time.perf_counter() - start
        if count == iterations or (iterations is None and count >= _LEAST and seconds > _SECONDS):
            return count / seconds
