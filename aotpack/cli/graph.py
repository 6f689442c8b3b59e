"""`aotpack inspect --graph`: the values of the programs, with operator, module, shape, dtype and device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aotpack.errors import AotpackError

if TYPE_CHECKING:
    from rich.console import Console

    from aotpack.archive.description import DescribedNode, DescribedVariant, Description

NO_DESCRIPTION = "the archive has no description of its programs"
NO_DESCRIPTION_HINT = "build the archive again: versions of aotpack before format 8 and `--no-description` leave it out"


def print_graph(console: Console, description: Description | None) -> None:
    """A table per variant: one line for each node, in the order of the program.

    Raises:
        AotpackError: the archive has no description.
    """
    if description is None:
        raise AotpackError(NO_DESCRIPTION, hint=NO_DESCRIPTION_HINT)
    for entry, variants in description.items():
        for variant, described in variants.items():
            console.print()
            title = f"graph of {entry}" if len(variants) == 1 else f"graph of {entry}, {variant}"
            console.print(title, style="bold", markup=False)
            _print_variant(console, described)


def _print_variant(console: Console, described: DescribedVariant) -> None:
    from aotpack.cli.terminal import make_table

    stages = any(node.stage is not None for node in described.nodes)
    joint = any(node.backward_of for node in described.nodes)
    columns = ["node", "operator", "module", "shape", "dtype", "device", *(["stage"] if stages else [])]
    columns += [*(["sequence", "backward of"] if joint else []), "reads"]
    table = make_table(*columns)
    for node in described.nodes:
        table.add_row(
            node.name,
            operator_of(node),
            module_of(node.module, described.modules) if node.kind == "call" else "",
            node.shapes,
            node.dtypes,
            node.devices,
            *(["" if node.stage is None else str(node.stage + 1)] if stages else []),
            *(["" if node.sequence is None else str(node.sequence), node.backward_of] if joint else []),
            ", ".join(described.nodes[index].name for index in node.inputs),
        )
    console.print(table)


def operator_of(node: DescribedNode) -> str:
    """The operator of a call; what an input or constant is called, behind its kind."""
    if node.kind == "call":
        return node.operator
    return f"{node.kind} {node.operator}".rstrip()


def module_of(path: str, classes: Mapping[str, str]) -> str:
    """`layers.0 (Linear)`; only the class at the top."""
    kind = classes.get(path, "")
    return f"{path} ({kind})" if path and kind else path or kind
