"""Headers that a source includes, found in its text: the same for every compiler, and whatever its macros say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


def include_folders_of(flags: Sequence[str]) -> tuple[Path, ...]:
    """The folders in which a compiler with these flags looks for headers, before its own."""
    folders, previous = [], ""
    for flag in flags:
        if previous in ("-I", "-isystem"):
            folders.append(Path(flag))
        elif flag.startswith("-I") and flag != "-I":
            folders.append(Path(flag[2:]))
        previous = flag
    return tuple(folders)


def included_headers(texts: Iterable[tuple[str, Path | None]], folders: Sequence[Path]) -> frozenset[Path]:
    """All headers below `folders`, or beside a source, that sources include, directly or not.

    Headers of other branches of a condition are among them. Those of the compiler and the system are not.

    Args:
        texts: of sources, each with the folder that it is in, if it is in one.
        folders: in the order in which they are searched.
    """
    found: set[Path] = set()
    pending = [(name, folder) for text, folder in texts for name in _names(text)]
    while pending:
        (name, quoted), beside = pending.pop()
        candidates = [beside] if quoted and beside is not None else []
        header = next((path for folder in [*candidates, *folders] if (path := folder / name).is_file()), None)
        if header is None:
            continue
        header = header.resolve()
        if header not in found:
            found.add(header)
            pending += [(included, header.parent) for included in _names_in(header)]
    return frozenset(found)


def _names(text: str) -> list[tuple[str, bool]]:
    """What a text includes, each with whether it is in quotes."""
    return [(quoted or angle, bool(quoted)) for quoted, angle in _INCLUDE.findall(text)]


@cache
def _names_in(header: Path) -> list[tuple[str, bool]]:
    return _names(header.read_text(encoding="utf-8", errors="replace"))
