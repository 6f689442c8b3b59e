"""`aotpack inspect`: the steps of implementations that have several, run elsewhere than the rest, or have assets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aotpack.cli.terminal import make_table

if TYPE_CHECKING:
    from rich.console import Console

    from aotpack.archive import Entry, Implementation, Manifest, Reference
    from aotpack.spec import TensorSpec

# Of the tensors that a step reads or produces. The fold of new weights has hundreds.
_SHOWN_NAMES = 8


def device_name(device: int | None, manifest: Manifest) -> str:
    """The name of a logical device; `host` for None."""
    return "host" if device is None else manifest.devices[device]


def shape_of(value: TensorSpec) -> str:
    """`[batch, 4]`."""
    return f"[{', '.join(map(str, value.shape))}]"


def layout_of(value: TensorSpec) -> str:
    """`contiguous`, or the order of the dims in memory."""
    dense = value.order == tuple(range(value.rank))
    return "contiguous" if dense else f"order {list(value.order)}"


def is_plain(implementation: Implementation, entry: Entry) -> bool:
    """Whether one module on the first device computes the entry, without assets and features."""
    from aotpack.archive import Implementation

    module = implementation.modules[0]
    whole = Implementation.of_module(module, len(entry.inputs), len(entry.outputs))
    return not module.assets and not module.features and implementation.steps == whole.steps


def print_steps(console: Console, entry: Entry, manifest: Manifest) -> None:
    """A table for each implementation that is not plain."""
    for variant in entry.variants:
        for implementation in variant.implementations:
            if not is_plain(implementation, entry):
                console.print(f"steps of {entry.name}, {variant.name}, {implementation.target}", style="bold")
                _print_implementation(console, implementation, entry, manifest)


def _print_implementation(console: Console, implementation: Implementation, entry: Entry, manifest: Manifest) -> None:
    from aotpack.archive import Source
    from aotpack.cli.common import format_bytes

    values = {Source.INPUT: entry.inputs, Source.OUTPUT: entry.outputs, Source.VALUE: implementation.values}

    def names(references: tuple[Reference, ...]) -> str:
        shown = [values[reference.source][reference.index].name for reference in references[:_SHOWN_NAMES]]
        more = len(references) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")

    files = {step.module.file for step in implementation.steps}
    if len(files) < len(implementation.steps):
        console.print(f"{len(files)} modules run in {len(implementation.steps)} steps")
    table = make_table("step", "device", "target", "module", "code", "reads", "makes", "assets", "features")
    for number, step in enumerate(implementation.steps, start=1):
        table.add_row(
            str(number),
            device_name(step.device, manifest),
            step.module.target,
            Path(manifest.files[step.module.file].path).stem,
            format_bytes(manifest.files[step.module.file].size),
            names(step.inputs),
            names(step.outputs),
            ", ".join(f"{asset.name} ({format_bytes(asset.nbytes)})" for asset in step.module.assets),
            ", ".join(step.module.features),
        )
    console.print(table)
    if implementation.values:
        table = make_table("value", "dtype", "shape", "layout", "device")
        for value in implementation.values:
            device = device_name(value.device, manifest)
            table.add_row(value.name, str(value.dtype), shape_of(value), layout_of(value), device)
        console.print(table)
