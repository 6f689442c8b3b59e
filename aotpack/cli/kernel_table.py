"""The kernels of an archive, with what they compute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from aotpack.archive import Entry, Implementation
    from aotpack.archive.description import DescribedNode, DescribedVariant


def print_kernels(console: Console, entry: Entry, described: Mapping[str, DescribedVariant]) -> None:
    """A table for each implementation: kernels in call order, with their source operators, and the modules of the
    source model that these are in. In a program with a backward also the operators whose backward they are part of,
    with their modules.

    Args:
        entry: of the archive.
        described: by variant, its description, if the archive has one.
    """
    from aotpack.cli.terminal import make_table

    for variant in entry.variants:
        known = described.get(variant.name)
        joint = known is not None and any(node.backward_of for node in known.nodes)
        for implementation in variant.implementations:
            console.print()
            console.print(f"kernels of {entry.name}, {variant.name}, {implementation.target}", style="bold")
            modules = ["module"] if known is not None else []
            table = make_table("#", "kernel", "computes", *modules, *(["backward of"] if joint else []))
            kernels = [kernel for module in implementation.modules for kernel in module.kernels]
            found = _nodes(known, implementation, len(kernels)) if known is not None else [()] * len(kernels)
            for number, (kernel, nodes) in enumerate(zip(kernels, found, strict=True)):
                row = [str(number), kernel.name, ", ".join(kernel.ops)]
                if known is not None:
                    row.append(_joined(node.module for node in nodes))
                if joint:
                    row.append(_joined(map(_derived, nodes)))
                table.add_row(*row)
            console.print(table)


def _nodes(described: DescribedVariant, implementation: Implementation, count: int) -> list[tuple[DescribedNode, ...]]:
    """The nodes that each of `count` kernels computes, as far as the description says."""
    steps = described.targets.get(implementation.target, ())
    found = [tuple(described.nodes[index] for index in kernel) for step in steps for kernel in step.kernels]
    return [*found[:count], *([()] * (count - len(found)))]


def _derived(node: DescribedNode) -> str:
    """`aten.relu in encoder.act`."""
    return f"{node.backward_of} in {node.module}" if node.backward_of and node.module else node.backward_of


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(filter(None, dict.fromkeys(texts)))
