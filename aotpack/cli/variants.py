"""`aotpack build --variant batch=1`: variants with fixed dims, or for inputs that are one tensor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import typer

GENERAL = "general"
_IS = re.compile(r"\s+is\s+")


@dataclass(frozen=True)
class VariantOption:
    """What an option asks for: the dims that it fixes, and groups of inputs that are one tensor."""

    sizes: dict[str, int] = field(default_factory=dict)
    same: tuple[tuple[str, ...], ...] = ()


def parse_variants(options: Sequence[str] | None) -> list[VariantOption] | None:
    """The options: `batch=1,length=128`, `batch=1,a is b`, `general`; None without options.

    Raises:
        typer.BadParameter: an option is neither `general` nor a list of DIM=SIZE and INPUT is INPUT.
    """
    if not options:
        return None
    return [VariantOption() if text == GENERAL else _parsed(text) for text in options]


def _parsed(text: str) -> VariantOption:
    sizes: dict[str, int] = {}
    same: list[tuple[str, ...]] = []
    for item in text.split(","):
        inputs = tuple(_IS.split(item.strip()))
        if len(inputs) > 1:
            same.append(inputs)
            continue
        name, equals, size = (part.strip() for part in item.partition("="))
        if not (name.isidentifier() and equals and size.removeprefix("-").isdecimal()):
            raise typer.BadParameter(
                f"{text!r} is invalid: use DIM=SIZE[,DIM=SIZE…], such as batch=1, INPUT is INPUT, such as 'a is b', or "
                f"{GENERAL!r}",
                param_hint="'--variant'",
            )
        if name in sizes:
            raise typer.BadParameter(f"{text!r} contains {name!r} twice", param_hint="'--variant'")
        sizes[name] = int(size)
    return VariantOption(sizes, tuple(same))
