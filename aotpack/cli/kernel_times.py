"""The output of `aotpack bench --per-kernel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotpack.cli.common import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from aotpack.cli.profiling import ProfileResult


def print_kernel_times(console: Console, result: ProfileResult) -> None:
    """A table with the kernels that take longest first, and a line about the rest of the call."""
    from aotpack.cli.terminal import make_table

    stages = len(result.steps) > 1
    columns = ["kernel", "p50", "share", "times", "computes", "nodes"]
    table = make_table(*columns[:1], *(["stage"] if stages else []), *columns[1:])
    for column in table.columns[2 if stages else 1 :][:3]:
        column.justify = "right"
    for each in sorted(result.kernels, key=lambda kernel: -kernel.seconds):
        table.add_row(
            each.name,
            *([str(each.step + 1)] if stages else []),
            format_seconds(each.seconds),
            f"{each.share:.1%}",
            str(each.count),
            ", ".join(each.operators),
            ", ".join(each.nodes),
        )
    console.print(table)
    if stages:
        table = make_table("stage", "device", "p50")
        for step in result.steps:
            table.add_row(str(step.step + 1), step.device, format_seconds(step.seconds))
        console.print(table)
    inside = sum(kernel.seconds for kernel in result.kernels)
    console.print(
        f"{result.calls} calls with hooks, p50 {format_seconds(result.seconds)}, of which kernels "
        f"{format_seconds(inside)}; threads {result.threads}, target {result.target}",
        style="dim",
    )
    shapes = ", ".join(f"{value['name']}{value['shape']}" for value in result.inputs)
    console.print(f"inputs ({result.inputs_from}): {shapes}", style="dim")
