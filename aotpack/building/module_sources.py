"""What a module is compiled from, as plain values: sources with their flags, and what they are linked with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class SourceUnit:
    """One call of the compiler: a text, or a file where there is no text, and its flags."""

    name: str
    flags: tuple[str, ...]
    text: str | None = None
    path: Path | None = None


@dataclass(frozen=True)
class ModuleSources:
    """What makes one shared object.

    Attributes:
        units: in the order in which they are linked.
        link_flags: flags of the compiler when it links.
        objects: object files and static archives that are linked after the units.
        roots: folders with headers of others by the name that they get.
        texts: files to read beside the sources, by name.
    """

    units: tuple[SourceUnit, ...]
    link_flags: tuple[str, ...]
    objects: tuple[Path, ...] = ()
    roots: Mapping[str, Path] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


# What of a module can be seen from outside.
EXPORT_MAP = "{ global: aotpack_module_query; local: *; };\n"
