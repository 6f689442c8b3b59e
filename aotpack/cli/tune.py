"""`aotpack tune`: finds the fastest ways of an archive's kernels on this machine, and writes them into the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aotpack.cli.common import ArchivePath, AsJson, parse_sizes, reports_errors

if TYPE_CHECKING:
    from aotpack.cli.tuning import Tuned


@reports_errors
def tune(
    archive: ArchivePath,
    threads: Annotated[
        str | None,
        typer.Option(
            "--threads",
            metavar="N[,N…]",
            help="Numbers of threads of a call to tune for; `all`: 1, 2, 4, … and one per core. Default: one per core, "
            "as calls have.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, metavar="S", help="About how long to measure, in all.")
    ] = 30.0,
    entry: Annotated[str | None, typer.Option("--entry", metavar="NAME", help="Entry to tune. Default: all.")] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim",
            metavar="NAME=SIZE",
            help="Size of a dim in the calls, whose inputs are then generated; kernels are tuned for these sizes. "
            "Repeatable.",
        ),
    ] = None,
    reuse: Annotated[
        bool,
        typer.Option("--reuse", help="Take what was found of the same kernels and sizes before, from the build cache."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measures the ways that kernels can go on this machine and writes the fastest into the archive, which is replaced
    by a rename. Needs neither torch nor a compiler.

    **Examples**

        aotpack tune model.aotpack
        aotpack tune model.aotpack --threads 1,4 --seconds 60
        aotpack tune model.aotpack --dim batch=8

    Kernels choose block sizes, how work is divided among threads and the like by themselves. Here each of them also
    runs in its other ways, inside of calls of the archive's example. A way is taken where it is faster by more than
    the noise, and only if calls as a whole are faster then. Results are for processors like this one and these numbers
    of threads; elsewhere kernels choose by themselves, or as that machine's tuning says. Run it while the machine does
    nothing else. docs/tuning.md has more.
    """
    from aotpack.cli.common import print_json, stderr_console, stdout_console
    from aotpack.cli.tuning import tune_archive
    from aotpack.cli.tuning_cache import TuningCache
    from aotpack.runtime._native import host_processor

    sizes = parse_sizes(dim)
    console = stderr_console()

    def progress(name: str, count: int) -> None:
        console.print(f"measuring {name}, {count} thread{'s' if count > 1 else ''} …", style="dim", soft_wrap=True)

    report = tune_archive(
        archive,
        threads=parse_threads(threads),
        seconds=seconds,
        entry=entry,
        sizes=sizes,
        cache=TuningCache(host_processor()),
        reuse=reuse,
        progress=None if as_json else progress,
    )
    if as_json:
        results = [result.to_dict() for result in report.results]
        print_json({"archive": archive, "processor": report.processor, "changed": report.changed, "results": results})
        return
    for result in report.results:
        _print(result)
    what = "written to the archive" if report.changed else "the archive stays as it is"
    stdout_console().print(f"{report.processor}: {what}", soft_wrap=True)


def parse_threads(text: str | None) -> list[int]:
    """`1,4` → [1, 4]; `all`: the powers of two up to the number of cores, and that number."""
    if text is None:
        return []
    if text == "all":
        from aotpack.runtime.cpus import process_cpus

        most = len(process_cpus())
        return [*(1 << i for i in range(most.bit_length()) if 1 << i < most), most]
    parts = text.split(",")
    if not all(part.strip().isdigit() and 0 < int(part) <= 4096 for part in parts):
        raise typer.BadParameter(f"{text!r} is not a list of numbers of threads, such as 1,4", param_hint="'--threads'")
    return [int(part) for part in parts]


def _print(result: Tuned) -> None:
    from aotpack.cli.common import format_seconds, stdout_console
    from aotpack.cli.terminal import make_table
    from aotpack.cli.tuning_text import site_text, way_text

    console = stdout_console()
    search = result.search
    console.print(f"{result.entry}, {result.threads} threads ({result.inputs_from})", style="bold", soft_wrap=True)
    if result.failure:
        console.print(result.failure, soft_wrap=True)
        return
    if search.found:
        table = make_table("kernel", "sizes", "way", "time", "speedup")
        for each in sorted(search.found.values(), key=lambda found: -(found.seconds or 0.0)):
            spent = "known" if each.seconds is None else format_seconds(each.seconds)
            table.add_row(
                each.site.kernel, site_text(each.site), way_text(each.site, each.choice), spent, f"{each.speedup:.2f}"
            )
        console.print(table)
    counts = f"{len(search.sites)} kernels and sizes, {len(search.measured)} measured, {result.reused} known"
    console.print(f"{counts}; each way ran {search.rounds} times", style="dim", soft_wrap=True)
    if search.problem:
        console.print(f"nothing {'more' if search.found else 'taken'}: {search.problem}", soft_wrap=True)
    if search.found:
        times = f"a call takes {format_seconds(search.before)} before, {format_seconds(search.after)} after"
        console.print(f"{times}; by their own times, kernels save {format_seconds(search.saved)}", soft_wrap=True)
    elif not search.problem:
        console.print("no way is faster than what the kernels choose by themselves", soft_wrap=True)
