"""What the build cache holds, and keeping it below a limit."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aotpack.building.folders import own_part
from aotpack.building.locks import lock_if_free
from aotpack.building.temporary import sweep
from aotpack.errors import BuildError

# The suffix of the file that has the hash of an entry.
SEAL = ".sha256"

DEFAULT_LIMIT = 5 << 30

_KINDS = {".o": "objects", ".so": "modules", ".h.gch": "precompiled headers"}
_ENTRY = re.compile(r"(?P<key>[0-9a-f]{64})(?P<suffix>(\.\w+)+?)(?P<seal>\.sha256)?")
# The layout of earlier versions, directly in the cache folder: nothing reads it any more.
_OLD_FOLDER = re.compile(r"[0-9a-f]{2}")
_OLD_ENTRY = re.compile(r"[0-9a-f]{64}\.(o|so|h|h\.gch|wanted)")
_OLD_SCRATCH = re.compile(r"[0-9a-f]{32}\.lock|[0-9a-f]{16}-\d+-[0-9a-f]{8}\.[\w.]+")
_OLD_SECONDS = 7 * 24 * 3600

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True)
class Entry:
    """A file of the cache: its size in bytes with its seal's, when it was used last (seconds since 1970), its kind."""

    path: Path
    size: int
    used: float
    kind: str


@dataclass(frozen=True)
class Removed:
    """What was removed."""

    files: int
    bytes: int

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.files + other.files, self.bytes + other.bytes)


def parse_size(text: str) -> int:
    """Bytes: "1024", "500M", "2.5 GB"; units of 1024.

    Raises:
        ValueError: it is not a size.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 500M or 2G")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def limit_from_environment() -> int:
    """The limit of the cache in bytes: `$AOTPACK_CACHE_SIZE`, by default 5 GB; 0 is none.

    Raises:
        BuildError: it is not a size.
    """
    text = os.environ.get("AOTPACK_CACHE_SIZE")
    try:
        return parse_size(text) if text else DEFAULT_LIMIT
    except ValueError as error:
        raise BuildError(f"AOTPACK_CACHE_SIZE: {error}", hint="0 means no limit") from None


def entries(root: Path) -> list[Entry]:
    """This user's entries of the cache folder."""
    found: dict[tuple[str, str], list[tuple[Path, os.stat_result]]] = {}
    for path in _files(own_part(root), _OLD_FOLDER):
        match = _ENTRY.fullmatch(path.name)
        if match is not None:
            with contextlib.suppress(OSError):
                found.setdefault((match["key"], match["suffix"]), []).append((path, path.lstat()))
    listed = []
    for (_, suffix), files in found.items():
        path = next((path for path, _ in files if path.suffix != SEAL), files[0][0].with_suffix(""))
        # Reading an entry touches its seal.
        used = max(about.st_mtime for _, about in files)
        listed.append(Entry(path, sum(about.st_size for _, about in files), used, _KINDS.get(suffix, "notes")))
    return listed


def leftovers(root: Path) -> list[Entry]:
    """Files of the layout of earlier versions, directly in the cache folder."""
    listed = []
    folders = [(root, _OLD_FOLDER, _OLD_ENTRY), (root, re.compile("locks|tmp"), _OLD_SCRATCH)]
    for folder, names, pattern in folders:
        for path in _files(folder, names):
            with contextlib.suppress(OSError):
                about = path.lstat()
                if pattern.fullmatch(path.name) and about.st_uid == os.geteuid():
                    listed.append(Entry(path, about.st_size, about.st_mtime, "earlier versions"))
    return listed


def trim(root: Path, limit: int) -> Removed:
    """Removes what was not used for longest until at most `limit` bytes remain (0: no limit); and what earlier versions
    left a week ago or before.
    """
    removed = remove_leftovers(root, older_than=time.time() - _OLD_SECONDS)
    if limit <= 0:
        return removed
    listed = sorted(entries(root), key=lambda entry: entry.used)
    total = sum(entry.size for entry in listed)
    for entry in listed:
        if total <= limit:
            break
        # What a build has used since it was listed stays: that build may be about to read it again.
        if _remove(root, entry, used_by=entry.used):
            total -= entry.size
            removed += Removed(1, entry.size)
    return removed


def clear(root: Path) -> Removed:
    """Removes every entry, and what earlier versions and killed builds left. What a build uses at this moment stays."""
    removed = remove_leftovers(root)
    sweep(own_part(root) / "tmp")
    for entry in entries(root):
        if _remove(root, entry):
            removed += Removed(1, entry.size)
    return removed


def remove_leftovers(root: Path, *, older_than: float = float("inf")) -> Removed:
    """Removes files of the layout of earlier versions that were written before `older_than` (seconds since 1970)."""
    removed = Removed(0, 0)
    for entry in leftovers(root):
        if entry.used < older_than:
            with contextlib.suppress(OSError):
                entry.path.unlink()
                removed += Removed(1, entry.size)
                entry.path.parent.rmdir()
    return removed


def _remove(root: Path, entry: Entry, *, used_by: float = float("inf")) -> bool:
    """Unless a build is making it at this moment, or has used it after `used_by` (seconds since 1970)."""
    files = (entry.path.with_name(entry.path.name + SEAL), entry.path)
    with lock_if_free(own_part(root) / "locks" / f"{entry.path.name[:32]}.lock") as free:
        if not free or _last_use(files) > used_by:
            return False
        for path in files:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
    return True


def _last_use(files: Iterable[Path]) -> float:
    """Seconds since 1970; 0 where none of the files is there."""
    last = 0.0
    for path in files:
        with contextlib.suppress(OSError):
            # Reading an entry touches its seal.
            last = max(last, path.lstat().st_mtime)
    return last


def _files(folder: Path, names: re.Pattern[str]) -> Iterator[Path]:
    """Files in the folders of `folder` with such names."""
    try:
        with os.scandir(folder) as found:
            inner = [item.path for item in found if names.fullmatch(item.name) and item.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in sorted(inner):
        with contextlib.suppress(OSError), os.scandir(path) as found:
            yield from [Path(item.path) for item in found if not item.is_dir(follow_symlinks=False)]
