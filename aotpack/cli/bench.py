"""`aotpack bench`: the duration of a call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aotpack.cli.common import ArchivePath, AsJson, EntryName, Threads, parse_sizes, reports_errors
from aotpack.cli.devices import DeviceName, GraphLimit, load_on

if TYPE_CHECKING:
    from aotpack.runtime import Model

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
    device: DeviceName = None,
    graphs: GraphLimit = None,
    per_kernel: Annotated[
        bool,
        typer.Option(
            "--per-kernel", help="Measure every kernel instead. The archive is built with `aotpack build --profile`."
        ),
    ] = False,
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="Measure calls per second of a pipeline of the archive's stages instead.")
    ] = False,
    cpus: Annotated[
        list[str] | None,
        typer.Option(
            "--cpus",
            metavar="LIST",
            help='With --pipeline: the CPUs of a stage, such as "0-3,8"; once for each stage, in order. Default: the '
            "CPUs of the process, divided evenly.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measures the duration of calls from Python: arrays in, arrays out, one caller.

    **Examples**

        aotpack bench model.aotpack
        aotpack bench model.aotpack --dim batch=8 --threads 1
        aotpack bench model.aotpack -n 1000 --json
        aotpack bench model.aotpack --device cuda:0
        aotpack bench model.aotpack --per-kernel --json > kernels.json
        aotpack bench model.aotpack --pipeline --cpus 0-3 --cpus 4-7

    The inputs are those of the archive's example call. They are generated if the archive has no example call or if
    `--dim` is given. `items/s` counts the product of the given dims. With `--device cuda:0`, inputs and results are on
    the GPU; each call waits for its results. `back to back` is the mean of as many calls that do not wait.
    With `--per-kernel`, p50 is the median of the seconds that a kernel takes in a call; `latencies` in the JSON output
    is a table for `aotpack.export.partition`.
    With `--pipeline`, the stages run on threads of their own with `--threads` threads each, and as many calls are under
    way as fit; calls of one context, one after the other, are measured before.
    """
    sizes = parse_sizes(dim)
    if per_kernel and pipeline:
        raise typer.BadParameter("--per-kernel and --pipeline exclude each other")
    if cpus and not pipeline:
        raise typer.BadParameter("--cpus needs --pipeline")
    if pipeline:
        from aotpack.cli.pipelines import bench_pipeline

        model = load_on(archive, device, threads=threads, graphs=graphs)
        bench_pipeline(archive, model, entry, sizes, cpus, threads, iterations, warmup, as_json=as_json)
        return
    if per_kernel:
        _bench_kernels(archive, entry, sizes, threads, iterations, warmup, device, graphs, as_json=as_json)
        return

    import math
    import statistics
    import time

    from aotpack.cli.common import format_seconds, print_json, stdout_console
    from aotpack.cli.profiling import call_inputs

    model = load_on(archive, device, threads=threads, graphs=graphs)
    runner = model.entry(entry) if entry else model
    description = runner.manifest.entry(runner.entry_name)
    assert description is not None
    arrays, source = call_inputs(archive, runner, sizes)
    shapes = [list(array.shape) for array in arrays]
    if model.device != "cpu":
        inputs = zip(description.inputs, arrays, strict=True)
        given: list[Any] = [array if value.number else runner.to_device(array) for value, array in inputs]
    else:
        given = list(arrays)

    for _ in range(max(1, warmup)):
        runner.run(given)
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < (iterations or _MOST):
        start = time.perf_counter()
        runner.run(given)
        end = time.perf_counter()
        times.append(end - start)
        if iterations is None and len(times) >= _LEAST and end - began > _SECONDS:
            break
    back_to_back = None if model.device == "cpu" else _back_to_back(model, runner.entry_name, given, len(times))
    times.sort()
    mean = statistics.fmean(times)
    result = {
        "archive": archive,
        "entry": runner.entry_name,
        "target": runner.target,
        "device": model.device,
        "threads": runner.num_threads,
        "inputs": [{"name": v.name, "shape": s} for v, s in zip(description.inputs, shapes, strict=True)],
        "inputs_from": source,
        "iterations": len(times),
        "p50_seconds": _quantile(times, 0.5),
        "p90_seconds": _quantile(times, 0.9),
        "min_seconds": times[0],
        "mean_seconds": mean,
        "back_to_back_seconds": back_to_back,
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
        *(["back to back"] if back_to_back else []),
        "calls",
        "threads",
        "target",
    ):
        table.add_column(column, justify="right")
    rates = [f"{1 / mean:.1f}"] + ([f"{math.prod(sizes.values()) / mean:.1f}"] if sizes else [])
    quantiles = [_quantile(times, 0.5), _quantile(times, 0.9), times[0], mean]
    if back_to_back:
        rates.append(format_seconds(back_to_back))
    table.add_row(*map(format_seconds, quantiles), *rates, str(len(times)), str(runner.num_threads), runner.target)
    console = stdout_console()
    console.print(table)
    named = ", ".join(f"{v.name}{shape}" for v, shape in zip(description.inputs, shapes, strict=True))
    console.print(f"inputs ({source}): {named}", style="dim")


def _bench_kernels(
    archive: Path,
    entry: str | None,
    sizes: dict[str, int],
    threads: int | None,
    iterations: int | None,
    warmup: int,
    device: str | None,
    graphs: int | None,
    *,
    as_json: bool,
) -> None:
    """Measures every kernel of an entry.

    Raises:
        AotpackError: the modules do not record their kernels.
    """
    from aotpack.cli.common import print_json, stdout_console
    from aotpack.cli.kernel_times import print_kernel_times
    from aotpack.cli.profiling import profile, require_kernels

    model = load_on(archive, device, threads=threads, graphs=graphs)
    result = profile(archive, model, entry=entry, sizes=sizes, threads=threads, calls=iterations, warmup=warmup)
    require_kernels(result)
    if as_json:
        print_json({"archive": archive, **result.to_dict()})
        return
    print_kernel_times(stdout_console(), result)


def _back_to_back(model: Model, entry: str, arrays: list[Any], calls: int) -> float:
    """The mean duration of calls that do not wait for their results, in seconds."""
    import time

    per_thread_stream = 2
    context = model.context(stream=per_thread_stream)
    runner = context.entry(entry)
    for count in (10, calls):
        context.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            runner.run(arrays)
        context.synchronize()
        end = time.perf_counter()
    return (end - start) / calls


def _quantile(ordered: list[float], q: float) -> float:
    """A quantile of sorted values, with linear interpolation."""
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
