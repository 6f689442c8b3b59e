"""`aotpack run`: runs an archive with arrays from a file or generated arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotpack.cli.common import ArchivePath, AsJson, EntryName, Threads, parse_sizes, reports_errors
from aotpack.cli.devices import DeviceName, GraphLimit, load_on


@reports_errors
def run(
    archive: ArchivePath,
    inputs: Annotated[
        Path | None,
        typer.Option("--inputs", "-i", metavar="FILE.npz", help="Inputs by name, as listed by `aotpack inspect`."),
    ] = None,
    random: Annotated[
        bool,
        typer.Option(
            "--random", help="Generate inputs: normally distributed floats, integers 0 or 1. The same in every run."
        ),
    ] = False,
    dim: Annotated[
        list[str] | None, typer.Option("--dim", metavar="NAME=SIZE", help="With --random: size of a dim. Repeatable.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.npz", help="Write the outputs to this file, by name.")
    ] = None,
    entry: EntryName = None,
    threads: Threads = None,
    device: DeviceName = None,
    graphs: GraphLimit = None,
    as_json: AsJson = False,
) -> None:
    """Runs an archive once and summarizes its outputs. Does not need torch.

    **Examples**

        aotpack run model.aotpack --random
        aotpack run model.aotpack --random --dim batch=8
        aotpack run model.aotpack -i inputs.npz -o outputs.npz --threads 2
        aotpack run model.aotpack --random --device cuda:0

    Create an input file with `numpy.savez("inputs.npz", x=array, …)`. bfloat16 is stored as uint16 with the same bits,
    float8 as uint8, and a scalar as an array of rank 0: `numpy.savez("inputs.npz", n=3, …)`.
    """
    if (inputs is None) == (not random):
        raise typer.BadParameter("give either --inputs FILE.npz or --random", param_hint="'--inputs' / '--random'")
    if dim and not random:
        raise typer.BadParameter("--dim requires --random", param_hint="'--dim'")
    sizes = parse_sizes(dim)

    import time

    import numpy as np

    from aotpack.cli.arrays import load_npz, random_inputs, stored, summary
    from aotpack.cli.common import format_seconds, print_json, stderr_console, stdout_console

    began = time.perf_counter()
    model = load_on(archive, device, threads=threads, graphs=graphs)
    runner = model.entry(entry) if entry else model
    loaded = time.perf_counter()
    description = runner.manifest.entry(runner.entry_name)
    assert description is not None
    signature = description.signature
    arrays = load_npz(inputs, signature) if inputs else random_inputs(description, sizes)
    start = time.perf_counter()
    results = [np.asarray(result) for result in runner.run(arrays)]
    end = time.perf_counter()

    if output is not None:
        named = {spec.name: stored(spec.dtype, array) for spec, array in zip(signature.outputs, results, strict=True)}
        with open(output, "wb") as file:
            np.savez(file, **named)  # type: ignore[arg-type]  # numpy would interpret the keys as its own options
    outputs = [summary(spec, array) for spec, array in zip(signature.outputs, results, strict=True)]
    if as_json:
        print_json(
            {
                "archive": archive,
                "entry": runner.entry_name,
                "target": runner.target,
                "device": model.device,
                "load_seconds": loaded - began,
                "run_seconds": end - start,
                "outputs": outputs,
                "written": output,
            }
        )
        return

    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("output", "dtype", "shape", "min", "max", "mean"):
        table.add_column(column)
    for item in outputs:
        numbers = ["" if item[key] is None else f"{item[key]:.6g}" for key in ("min", "max", "mean")]
        table.add_row(item["name"], item["dtype"], str(item["shape"]), *numbers)
    stdout_console().print(table)
    console = stderr_console()
    console.print(
        f"loaded in {format_seconds(loaded - began)}, first run in {format_seconds(end - start)}", style="dim"
    )
    if output is not None:
        console.print(f"wrote {output}", style="dim", soft_wrap=True)
