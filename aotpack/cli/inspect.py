"""`aotpack inspect`: the contents of an archive of any target. Runs no code from it, except to measure a profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aotpack.cli.common import ArchivePath, AsJson, EntryName, Threads, parse_sizes, reports_errors
from aotpack.cli.devices import DeviceName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from aotpack.archive import ArchiveReader, Entry, Manifest
    from aotpack.archive.description import DescribedVariant
    from aotpack.cli.kept import Kept
    from aotpack.cli.profiling import ProfileResult


@reports_errors
def inspect(
    archive: ArchivePath,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="List the kernels and the source operators that each kernel computes.")
    ] = False,
    weights: Annotated[
        bool, typer.Option("--weights", help="List the constants with role, dtype, shape and size.")
    ] = False,
    passes: Annotated[
        bool, typer.Option("--passes", help="Show the changes of each graph pass, layer by layer.")
    ] = False,
    graph: Annotated[
        bool,
        typer.Option("--graph", help="List the values of the program with operator, module, shape, dtype and device."),
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="PATH", help="Write a report as one HTML page.", dir_okay=False)
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Run an entry and add measured times. Runs code from the archive.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="PATH", help="Write the profile as a trace for Perfetto.", dir_okay=False),
    ] = None,
    entry: EntryName = None,
    dim: Annotated[
        list[str] | None,
        typer.Option("--dim", metavar="NAME=SIZE", help="Size of a dim in the profiled call. Repeatable."),
    ] = None,
    threads: Threads = None,
    device: DeviceName = None,
    as_json: AsJson = False,
) -> None:
    """Shows the contents of an archive: signature, dims, variants, targets, sizes and provenance. Runs no code from it,
    unless `--profile` or `--trace` is given.

    **Examples**

        aotpack inspect model.aotpack
        aotpack inspect model.aotpack --kernels --weights
        aotpack inspect model.aotpack --json | jq '.entries[0].inputs'
        aotpack inspect model.aotpack --html report.html
        aotpack inspect model.aotpack --profile --html report.html --trace trace.json

    With `--json`, the output always includes kernels, constants, passes and graphs, and the profile if there is one.
    Archives that are built with `--profile` have times for each kernel, others only for each step.
    """
    from aotpack.archive import ArchiveReader
    from aotpack.archive.description import read_description
    from aotpack.cli.common import print_json, stdout_console
    from aotpack.cli.graph import print_graph
    from aotpack.cli.kernel_table import print_kernels
    from aotpack.cli.kernel_times import print_kernel_times
    from aotpack.cli.passes import print_passes

    measured = None
    if profile or trace is not None:
        measured = _measure(archive, entry, parse_sizes(dim), threads, device)
    elif entry is not None or dim or threads is not None or device is not None:
        raise typer.BadParameter("goes with --profile", param_hint="--entry, --dim, --threads, --device")
    if trace is not None and measured is not None:
        _write_trace(trace, measured)
    if html is not None:
        _write_html(html, archive, measured)
    with ArchiveReader(archive) as reader:
        if as_json:
            print_json(_to_dict(reader) | ({"profile": measured.to_dict()} if measured is not None else {}))
            return
        if html is not None or trace is not None:
            return
        console = stdout_console()
        _print_head(console, reader)
        description = read_description(reader)
        for each in reader.manifest.entries:
            described = (description or {}).get(each.name, {})
            _print_entry(console, each, reader.manifest, described)
            if kernels:
                print_kernels(console, each, described)
        if weights:
            _print_weights(console, reader.manifest)
        if passes:
            print_passes(console, _passes(reader))
        if graph:
            print_graph(console, description)
        if measured is not None:
            print_kernel_times(console, measured)


def _measure(
    archive: Path, entry: str | None, sizes: dict[str, int], threads: int | None, device: str | None
) -> ProfileResult:
    from aotpack.cli.devices import load_on
    from aotpack.cli.profiling import profile

    model = load_on(archive, device, threads=threads, graphs=None)
    return profile(archive, model, entry=entry, sizes=sizes, threads=threads)


def _write_html(path: Path, archive: Path, measured: ProfileResult | None) -> None:
    from aotpack.archive import ArchiveReader
    from aotpack.cli.common import stderr_console
    from aotpack.cli.report import render
    from aotpack.cli.report_data import report_data

    with ArchiveReader(archive) as reader:
        page = render(report_data(reader, measured))
    path.write_text(page, encoding="utf-8")
    stderr_console().print(f"wrote {path} ({len(page.encode()) / 1024:.0f} KB)", soft_wrap=True)


def _write_trace(path: Path, measured: ProfileResult) -> None:
    import json

    from aotpack.cli.common import stderr_console
    from aotpack.cli.profiling import NO_HOOKS, NO_HOOKS_HINT
    from aotpack.cli.trace import trace_events

    path.write_text(json.dumps(trace_events(measured)) + "\n", encoding="utf-8")
    console = stderr_console()
    if not measured.has_kernels:
        console.print(f"{NO_HOOKS}: the trace has steps only\nhint: {NO_HOOKS_HINT}", soft_wrap=True)
    console.print(f"wrote {path}; open it at https://ui.perfetto.dev or chrome://tracing", soft_wrap=True)


def _to_dict(reader: ArchiveReader) -> dict[str, Any]:
    import dataclasses
    import json

    from aotpack.archive import encode_manifest
    from aotpack.archive.algorithms import read_algorithms
    from aotpack.archive.description import read_description
    from aotpack.archive.tuning import read_tunings
    from aotpack.cli.kept import kept_for_backwards
    from aotpack.cli.memory import memory_of

    manifest = json.loads(encode_manifest(reader.manifest))
    description = read_description(reader)
    programs = {
        entry: {variant: dataclasses.asdict(described) for variant, described in variants.items()}
        for entry, variants in (description or {}).items()
    }
    return {
        "archive": reader.path,
        "size": reader.size,
        "targets": list(reader.manifest.targets),
        "signatures": {entry.name: str(entry.signature) for entry in reader.manifest.entries},
        "missing_weights": _missing(reader.manifest),
        "weight_bytes": _bytes_below(reader.manifest, "weights/"),
        "module_bytes": _bytes_below(reader.manifest, "modules/"),
        "source_bytes": _bytes_below(reader.manifest, "sources/"),
        "kept_for_backward": {name: kept.to_dict() for name, kept in kept_for_backwards(reader.manifest).items()},
        "memory": None if description is None else memory_of(description),
        "tuning": [dataclasses.asdict(tuning) for tuning in read_tunings(reader)],
        "algorithms": [dataclasses.asdict(measured) for measured in read_algorithms(reader)],
        "passes": _passes(reader),
        "programs": None if description is None else programs,
        **manifest,
    }


def _passes(reader: ArchiveReader) -> dict[str, Any]:
    """The report of the passes by entry; empty if the archive has none."""
    from aotpack.archive.report import parse_report

    return {} if reader.manifest.report is None else parse_report(reader.read(reader.manifest.report))


def _missing(manifest: Manifest) -> dict[str, Any] | None:
    """The constants that a code-only archive lacks, and how many bytes they need; None if it has all."""
    absent = manifest.absent
    if not absent:
        return None
    return {"constants": [constant.name for constant in absent], "bytes": sum(constant.nbytes for constant in absent)}


def _bytes_below(manifest: Manifest, folder: str) -> int:
    return sum(file.size for file in manifest.files if file.path.startswith(folder))


def _print_head(console: Console, reader: ArchiveReader) -> None:
    from rich.text import Text

    from aotpack.cli.common import format_bytes
    from aotpack.cli.terminal import make_table, printable

    manifest = reader.manifest
    console.print(Text.assemble((printable(manifest.name), "bold"), f"  {printable(str(reader.path))}"))
    table = make_table("", "")
    table.show_header = False
    table.add_row("size", format_bytes(reader.size))
    roles: dict[str, int] = {}
    for constant in manifest.constants:
        roles[constant.role] = roles.get(constant.role, 0) + 1
    counts = ", ".join(f"{count} {role}" for role, count in roles.items())
    table.add_row("weights", format_bytes(_bytes_below(manifest, "weights/")) + (f" ({counts})" if counts else ""))
    if missing := _missing(manifest):
        needed = f"{format_bytes(missing['bytes'])} for {len(missing['constants'])} constants"
        table.add_row("missing weights", f"{needed}; `aotpack pack` adds them")
    table.add_row("code", format_bytes(_bytes_below(manifest, "modules/")))
    if (sources := _bytes_below(manifest, "sources/")) > 0:
        table.add_row("sources", f"{format_bytes(sources)}; `aotpack unpack` writes them as a folder")
    table.add_row("updatable", _updatable(manifest))
    table.add_row("targets", ", ".join(manifest.targets))
    if len(manifest.devices) > 1:
        table.add_row("devices", ", ".join(manifest.devices))
    table.add_row("tuned", _tuned(reader))
    if algorithms := _algorithms(reader):
        table.add_row("algorithms", algorithms)
    table.add_row("format", f"version {manifest.format_version}")
    for key, value in manifest.producer.items():
        table.add_row(key, value)
    console.print(table)


def _updatable(manifest: Manifest) -> str:
    if manifest.weights is None:
        return "no: frozen"
    folded = len(manifest.weights.fold.results) if manifest.weights.fold is not None else 0
    return f"yes: {len(manifest.weights.tensors)} tensors, {folded} constants folded from them"


def _tuned(reader: ArchiveReader) -> str:
    from aotpack.archive.tuning import read_tunings

    found = [
        f"{len(tuning.choices)} kernels for {tuning.threads} thread{'s' if tuning.threads > 1 else ''} of "
        f"{tuning.target} on {tuning.processor}"
        for tuning in read_tunings(reader)
    ]
    return "; ".join(found) or "no"


def _algorithms(reader: ArchiveReader) -> str:
    """What the build measured of algorithms; empty where it did not."""
    from aotpack.archive.algorithms import read_algorithms
    from aotpack.cli.build_tuning import algorithms_text

    by_host: dict[tuple[str, str, int], list[Any]] = {}
    for each in read_algorithms(reader):
        by_host.setdefault((each.target, each.processor, each.threads), []).append(each)
    return "; ".join(
        f"{algorithms_text(measured)}: measured with {threads} thread{'s' if threads > 1 else ''} of {target} on "
        f"{processor}"
        for (target, processor, threads), measured in sorted(by_host.items())
    )


def _print_entry(console: Console, entry: Entry, manifest: Manifest, described: Mapping[str, DescribedVariant]) -> None:
    from aotpack.cli.common import format_bytes
    from aotpack.cli.device_code import NOTE, device_code
    from aotpack.cli.kept import kept_for_backwards
    from aotpack.cli.memory import peak_of
    from aotpack.cli.steps import device_name, layout_of, print_steps, shape_of
    from aotpack.cli.terminal import make_table

    console.print()
    console.print(str(entry.signature), style="bold", soft_wrap=True)
    # On one device, only what lies elsewhere says where.
    tensors = [value for value in (*entry.inputs, *entry.outputs) if value.number is None]
    devices = len(manifest.devices) > 1 or any(value.device is None for value in tensors)
    table = make_table("", "name", "dtype", "shape", "layout", *(["device"] if devices else []))
    for kind, values in (("in", entry.inputs), ("out", entry.outputs)):
        for value in values:
            where = [device_name(value.device, manifest)] if devices else []
            if value.number is not None:
                table.add_row(kind, value.name, value.number, str(value.dim or value.formula or ""), "scalar", *where)
                continue
            layout = layout_of(value) + (", mutated" if value.mutated else "")
            table.add_row(kind, value.name, str(value.dtype), shape_of(value), layout, *where)
    console.print(table)
    if (kept := kept_for_backwards(manifest).get(entry.name)) is not None:
        _print_kept(console, kept)
    if entry.dims:
        table = make_table("dim", "min", "max", "multiple of")
        for dim in entry.dims:
            maximum = "unbounded" if dim.max is None else str(dim.max)
            table.add_row(dim.name, str(dim.min), maximum, str(dim.multiple_of))
        console.print(table)
    implementations = [implementation for variant in entry.variants for implementation in variant.implementations]
    cuda = any(device_code(implementation.modules) for implementation in implementations)
    peaks = {
        (variant.name, each.target): peak_of(described.get(variant.name), each.target)
        for variant in entry.variants
        for each in variant.implementations
    }
    known = any(peak is not None for peak in peaks.values())
    columns = [*(["peak memory"] if known else []), *(["device code"] if cuda else [])]
    table = make_table("variant", "target", "module", "kernels", *columns, "condition")
    for variant in entry.variants:
        for implementation in variant.implementations:
            files = {module.file for module in implementation.modules}
            size = format_bytes(sum(manifest.files[file].size for file in files))
            kernels = str(sum(len(module.kernels) for module in implementation.modules))
            peak = peaks[variant.name, implementation.target]
            memory = ["" if peak is None else format_bytes(peak)] if known else []
            code = [device_code(implementation.modules)] if cuda else []
            when = variant.when(entry.inputs) or "always"
            table.add_row(variant.name, implementation.target, size, kernels, *memory, *code, when)
    console.print(table)
    if cuda:
        console.print(NOTE, style="dim", soft_wrap=True)
    print_steps(console, entry, manifest)


def _print_kept(console: Console, kept: Kept) -> None:
    from aotpack.cli.common import format_bytes

    sizes = [
        format_bytes(count) + (f" at {', '.join(f'{name}={size}' for name, size in dims.items())}" if dims else "")
        for dims, count in kept.nbytes
    ]
    console.print(
        f"kept for {kept.backward}: {', '.join(sizes)} in {len(kept.outputs)} outputs; "
        f"inputs of the caller: {', '.join(kept.inputs) or 'none'}",
        soft_wrap=True,
    )


def _print_weights(console: Console, manifest: Manifest) -> None:
    from aotpack.cli.common import format_bytes
    from aotpack.cli.terminal import make_table

    console.print()
    table = make_table("constant", "role", "dtype", "shape", "bytes", "sha256", "from")
    for constant in manifest.constants:
        sources = ", ".join(constant.sources)
        table.add_row(
            constant.name,
            constant.role + (", mutated" if constant.mutated else ""),
            str(constant.dtype),
            str(list(constant.shape)),
            format_bytes(constant.nbytes),
            "missing" if constant.sha256 is None else constant.sha256[:12],
            "" if sources == constant.name else sources,
        )
    console.print(table)
