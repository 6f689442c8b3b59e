"""The files of an archive that is being packed, and their names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain, count

from aotpack.archive import Asset, FileSource
from aotpack.export.driver.compiled import CompiledModule
from aotpack.export.ir.units import DEFAULT, Unit


@dataclass
class ArchiveFiles:
    """The files of an archive so far.

    Attributes:
        sources: the files.
        modules: the modules by their paths; of those that share a file, the first.
        shared: the files of modules by the code that they have.
    """

    sources: list[FileSource]
    modules: dict[str, CompiledModule] = field(default_factory=dict)
    shared: dict[int, tuple[int, tuple[Asset, ...]]] = field(default_factory=dict)

    def add(self, file: FileSource) -> int:
        """The file's number."""
        self.sources.append(file)
        return len(self.sources) - 1

    def path(self, path: str, extension: str) -> str:
        """`path` with what the format does not allow replaced, and a number where that makes it equal to another."""
        plain = re.sub(r"[^A-Za-z0-9._/-]", "-", path)
        taken = {file.path for file in self.sources}
        free = (f"{plain}{suffix}{extension}" for suffix in chain([""], (f".{i}" for i in count(2))))
        return next(path for path in free if path not in taken)


def stem_of(unit: Unit) -> str:
    """What the names of a unit's files begin with."""
    return unit.name if unit.variant == DEFAULT else f"{unit.name}.{unit.variant}"
