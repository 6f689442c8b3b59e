"""`aotpack build --variant batch=1`: variants with fixed dims."""

from __future__ import annotations

from collections.abc import Sequence

import typer

GENERAL = "general"


def parse_variants(options: Sequence[str] | None) -> list[dict[str, int]] | None:
    """`["batch=1,length=128", "general"]` → `[{"batch": 1, "length": 128}, {}]`; None without options.

    Raises:
        typer.BadParameter: an option is neither `general` nor DIM=SIZE[,DIM=SIZE…].
    """
    if not options:
        return None
    return [{} if text == GENERAL else _sizes(text) for text in options]


def _sizes(text: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for item in text.split(","):
        name, equals, size = (part.strip() for part in item.partition("="))
        if not (name.isidentifier() and equals and size.removeprefix("-").isdecimal()):
            raise typer.BadParameter(
                f"{text!r} is invalid: use DIM=SIZE[,DIM=SIZE…], such as batch=1, or {GENERAL!r}",
                param_hint="'--variant'",
            )
        if name in sizes:
            raise typer.BadParameter(f"{text!r} contains {name!r} twice", param_hint="'--variant'")
        sizes[name] = int(size)
    return sizes
