"""The build cache: files by the hash of everything that went into them.

A file appears in the cache by rename, complete or not at all. A lock per key (filelock, so that a killed process leaves
none) lets two builds that need the same file make it once.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable
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


class BuildCache:
    """Content-addressed files below one folder. Safe to share between threads, processes and users of the folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()
        self.hits = 0
        self.misses = 0
        (self.folder / "locks").mkdir(parents=True, exist_ok=True)
        (self.folder / "tmp").mkdir(exist_ok=True)
        self._remove_stale()

    def get(self, key: str, suffix: str, make: Callable[[Path], None]) -> Path:
        """The file for `key`; when there is none, `make(path)` writes it to a temporary path first."""
        path = self.folder / key[:2] / f"{key}{suffix}"
        if path.exists():
            self.hits += 1
            return path
        with FileLock(str(self.folder / "locks" / f"{key[:32]}.lock")):
            if path.exists():
                self.hits += 1
                return path
            self.misses += 1
            path.parent.mkdir(exist_ok=True)
            temporary = self.folder / "tmp" / f"{key[:16]}-{os.getpid()}-{secrets.token_hex(4)}{suffix}"
            try:
                make(temporary)
                os.replace(temporary, path)
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink()
        return path

    def _remove_stale(self) -> None:
        limit = time.time() - _STALE_SECONDS
        for leftover in (self.folder / "tmp").iterdir():
            with contextlib.suppress(OSError):
                if leftover.stat().st_mtime < limit:
                    leftover.unlink()
