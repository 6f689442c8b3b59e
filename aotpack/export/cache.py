"""The build cache: files by the hash of everything that went into them.

A file appears in the cache by rename, complete or not at all. A lock per key (filelock, so that a killed process leaves
none) lets two builds that need the same file make it once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from filelock import FileLock

# Leftovers of killed builds are removed once they are this old.
_STALE_SECONDS = 24 * 3600


def default_folder() -> Path:
    """`$AOTPACK_CACHE_DIR`, else `aotpack` in the XDG cache folder."""
    explicit = os.environ.get("AOTPACK_CACHE_DIR")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aotpack"


def digest_of(parts: Iterable[str]) -> str:
    """The key of what is made of these texts: SHA-256, in hexadecimal."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


class BuildCache:
    """Content-addressed files below one folder. Safe to share between threads, processes and users of the folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()
        self._found: set[str] = set()
        self._made: set[str] = set()
        (self.folder / "locks").mkdir(parents=True, exist_ok=True)
        (self.folder / "tmp").mkdir(exist_ok=True)
        self._remove_stale()

    def get(self, key: str, suffix: str, make: Callable[[Path], None]) -> Path:
        """The file for `key`; when there is none, `make(path)` writes it to a temporary path first."""
        return self._obtain(key, suffix, make, self._note)

    def aside(self, key: str, suffix: str, make: Callable[[Path], None]) -> Path:
        """Like `get`, for what no archive is made of: neither hit nor miss."""
        return self._obtain(key, suffix, make, lambda *_: None)

    def path(self, key: str, suffix: str) -> Path:
        """Where the file for `key` is, or would be."""
        return self.folder / key[:2] / f"{key}{suffix}"

    def _obtain(
        self, key: str, suffix: str, make: Callable[[Path], None], note: Callable[[str, set[str]], None]
    ) -> Path:
        path = self.path(key, suffix)
        if path.exists():
            note(key, self._found)
            return path
        with FileLock(str(self.folder / "locks" / f"{key[:32]}.lock")):
            if path.exists():
                note(key, self._found)
                return path
            note(key, self._made)
            path.parent.mkdir(exist_ok=True)
            temporary = self.folder / "tmp" / f"{key[:16]}-{os.getpid()}-{secrets.token_hex(4)}{suffix}"
            try:
                make(temporary)
                os.replace(temporary, path)
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink()
        return path

    @property
    def hits(self) -> int:
        """How many of the files asked for were there before."""
        return len(self._found)

    @property
    def misses(self) -> int:
        """How many had to be made."""
        return len(self._made)

    def _note(self, key: str, outcome: set[str]) -> None:
        # A file counts once, by what was found when it was first asked for. Adding to a set is atomic.
        if key not in self._found and key not in self._made:
            outcome.add(key)

    def _remove_stale(self) -> None:
        limit = time.time() - _STALE_SECONDS
        for leftover in (self.folder / "tmp").iterdir():
            with contextlib.suppress(OSError):
                if leftover.stat().st_mtime < limit:
                    leftover.unlink()
