"""`aotpack bench`: the duration of a call."""

from __future__ import annotations

from typing import Annotated

import typer

from aotpack.cli.common import ArchivePath, AsJson, EntryName, Threads, parse_sizes, reports_errors

# Without --iterations: the approximate duration, and the minimum number of calls.
_SECONDS = 2.0
_LEAST = 10
_MOST = 1_000_000


@reports_errors
def bench(
    archive: ArchivePath,
    dim: Annotated[
        list[str] | None,
        typer.Option("--dim", metavar="NAME=SIZE", help="Size of a dim. Inputs are then generated. Repeatable."),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            "--iterations",
            "-n",
            min=1,
            metavar="N",
            help="Number of timed calls. Default: as many as run in two seconds.",
        ),
    ] = None,
    warmup: Annotated[
        int, typer.Option("--warmup", min=0, metavar="N", help="Number of calls before the timed calls.")
    ] = 5,
    entry: EntryName = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Measures the duration of calls from Python: arrays in, arrays out, one caller.

    **Examples**

        aotpack bench model.aotpack
        aotpack bench model.aotpack --dim batch=8 --threads 1
        aotpack bench model.aotpack -n 1000 --json

    The inputs are those of the archive's example call. They are generated if the archive has no example call or if
    `--dim` is given. `items/s` counts the product of the given dims.
    """
    sizes = parse_sizes(dim)

    import math
    import statistics
    import time

    from aotpack.archive import ArchiveReader
    from aotpack.cli.arrays import golden_inputs, random_inputs
    from aotpack.cli.common import format_seconds, print_json, stdout_console
    from aotpack.runtime import load

    model = load(archive, num_threads=threads)
    runner = model.entry(entry) if entry else model
    description = runner.manifest.entry(runner.entry_name)
    assert description is not None
    if sizes or not description.goldens:
        arrays, source = random_inputs(description, sizes), "generated"
    else:
        with ArchiveReader(archive) as reader:
            arrays, source = golden_inputs(reader, description.goldens[0]), "the archive's example"

    for _ in range(max(1, warmup)):
        runner.run(arrays)
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < (iterations or _MOST):
        start = time.perf_counter()
        runner.run(arrays)
        end = time.perf_counter()
        times.append(end - start)
        if iterations is None and len(times) >= _LEAST and end - began > _SECONDS:
            break
    times.sort()
    mean = statistics.fmean(times)
    result = {
        "archive": archive,
        "entry": runner.entry_name,
        "target": runner.target,
        "threads": runner.num_threads,
        "inputs": [{"name": v.name, "shape": list(a.shape)} for v, a in zip(description.inputs, arrays, strict=True)],
        "inputs_from": source,
        "iterations": len(times),
        "p50_seconds": _quantile(times, 0.5),
        "p90_seconds": _quantile(times, 0.9),
        "min_seconds": times[0],
        "mean_seconds": mean,
        "calls_per_second": 1 / mean,
        "items_per_second": math.prod(sizes.values()) / mean if sizes else None,
    }
    if as_json:
        print_json(result)
        return

    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "p50",
        "p90",
        "min",
        "mean",
        "calls/s",
        *(["items/s"] if sizes else []),
        "calls",
        "threads",
        "target",
    ):
        table.add_column(column, justify="right")
    rates = [f"{1 / mean:.1f}"] + ([f"{math.prod(sizes.values()) / mean:.1f}"] if sizes else [])
    quantiles = [_quantile(times, 0.5), _quantile(times, 0.9), times[0], mean]
    table.add_row(*map(format_seconds, quantiles), *rates, str(len(times)), str(runner.num_threads), runner.target)
    console = stdout_console()
    console.print(table)
    shapes = ", ".join(f"{v.name}{list(a.shape)}" for v, a in zip(description.inputs, arrays, strict=True))
    console.print(f"inputs ({source}): {shapes}", style="dim")


def _quantile(ordered: list[float], q: float) -> float:
    """A quantile of sorted values, with linear interpolation."""
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
