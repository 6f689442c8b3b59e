"""The build cache: files by the hash of everything that went into them, each with the hash of its content.

A file appears in the cache by rename, complete or not at all, and is synced before. The hash beside it is compared
whenever the file is used; a file that differs (a flipped bit, an empty file after a power cut) is made again. A lock
per key, which the kernel releases, lets two builds that need the same file make it once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from aotpack.archive.files import sync_folder
from aotpack.building.folders import open_folder
from aotpack.building.locks import lock
from aotpack.building.temporary import private_folder, sweep
from aotpack.building.usage import SEAL, limit_from_environment, trim

_Note = Callable[[str, bool], None]

# By file: device, inode, size and times when it was last read as a whole, and its digest. Shared by all caches of this
# process: every build of many opens one, and precompiled headers have 50 to 150 MB.
_checked: dict[Path, tuple[tuple[int, ...], str]] = {}


def digest_of(parts: Iterable[str]) -> str:
    """The key of what is made of these texts: SHA-256, in hexadecimal."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


class BuildCache:
    """Content-addressed files below one folder. Safe to share between threads and processes.

    Args:
        folder: the cache folder; by default `default_folder()`. Users who share it have a part each.

    Raises:
        BuildError: the folder cannot be used, or `$AOTPACK_CACHE_SIZE` is not a size.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._limit = limit_from_environment()
        self.root, self.folder = open_folder(folder)
        self._found: set[str] = set()
        self._made: set[str] = set()
        # Keys of what a build would have used, and did without.
        self.missed: set[str] = set()
        (self.folder / "locks").mkdir(mode=0o700, exist_ok=True)
        (self.folder / "tmp").mkdir(mode=0o700, exist_ok=True)
        sweep(self.folder / "tmp")
        sweep()

    def get(self, key: str, suffix: str, make: Callable[[Path], None]) -> Path:
        """The file for `key`; when there is none, `make(path)` writes it to a temporary path first."""
        return self._obtain(key, suffix, make, self._note)[0]

    def content(self, key: str, suffix: str, make: Callable[[Path], None]) -> bytes:
        """Like `get`: the file's bytes, exactly those that were compared with their hash."""
        path, content = self._obtain(key, suffix, make, self._note, read=True)
        assert content is not None, path
        return content

    def aside(self, key: str, suffix: str, make: Callable[[Path], None]) -> Path:
        """Like `get`, for what no archive is made of: neither hit nor miss."""
        return self._obtain(key, suffix, make, lambda *_: None)[0]

    def find(self, key: str, suffix: str) -> Path | None:
        """The file for `key` if it is there and whole."""
        path = self.path(key, suffix)
        return path if self._check(path) else None

    def read(self, key: str, suffix: str) -> bytes | None:
        """Like `find`: the file's bytes, exactly those that were compared with their hash."""
        return self._read(self.path(key, suffix))

    def path(self, key: str, suffix: str) -> Path:
        """Where the file for `key` is, or would be."""
        return self.folder / key[:2] / f"{key}{suffix}"

    def trim(self) -> None:
        """Removes what was not used for longest, until the cache is below its limit (`$AOTPACK_CACHE_SIZE`)."""
        trim(self.root, self._limit)

    @property
    def hits(self) -> int:
        """How many of the files asked for were there before."""
        return len(self._found)

    @property
    def misses(self) -> int:
        """How many had to be made."""
        return len(self._made)

    def _obtain(
        self, key: str, suffix: str, make: Callable[[Path], None], note: _Note, *, read: bool = False
    ) -> tuple[Path, bytes | None]:
        path = self.path(key, suffix)
        check = self._read if read else self._check
        found = check(path)
        if found is None or found is False:
            with lock(self.folder / "locks" / f"{key[:32]}.lock"):
                found = check(path)
                if found is None or found is False:
                    note(key, False)
                    return path, self._make(path, make, read=read)
        note(key, True)
        return path, found if isinstance(found, bytes) else None

    def _make(self, path: Path, make: Callable[[Path], None], *, read: bool) -> bytes | None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with private_folder(self.folder / "tmp") as folder:
            temporary, seal = folder / path.name, folder / (path.name + SEAL)
            make(temporary)
            content = temporary.read_bytes() if read else None
            with open(temporary, "rb") as file:
                digest = _digest(path.name, content if content is not None else file)
                os.fsync(file.fileno())
            with open(seal, "w") as file_of_seal:
                file_of_seal.write(digest + "\n")
                file_of_seal.flush()
                os.fsync(file_of_seal.fileno())
            # Between the two renames the seal is another file's or missing: who reads the file then makes it again.
            os.replace(temporary, path)
            os.replace(seal, _seal_of(path))
        sync_folder(path.parent)
        return content

    def _check(self, path: Path) -> bool:
        """Whether the file is there and has the content that its seal says."""
        try:
            with _open(path) as file:
                about = os.fstat(file.fileno())
                now = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
                before, digest = _checked.get(path, ((), ""))
                if before != now:
                    digest = _digest(path.name, file)
                    _checked[path] = now, digest
                if digest != _seal_of(path).read_text().strip():
                    return False
        except (OSError, ValueError):
            return False
        _touch(path)
        return True

    def _read(self, path: Path) -> bytes | None:
        try:
            with _open(path) as file:
                content = file.read()
            if _digest(path.name, content) != _seal_of(path).read_text().strip():
                return None
        except (OSError, ValueError):
            return None
        _touch(path)
        return content

    def _note(self, key: str, found: bool) -> None:
        # A file counts once, by what was found when it was first asked for. Adding to a set is atomic.
        if key not in self._found and key not in self._made:
            (self._found if found else self._made).add(key)


def _seal_of(path: Path) -> Path:
    return path.with_name(path.name + SEAL)


def _open(path: Path) -> BinaryIO:
    """A regular file of this user, not a link.

    Raises:
        PermissionError: it is something else.
    """
    file = open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")  # noqa: SIM115 - the caller closes it
    about = os.fstat(file.fileno())
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
        file.close()
        raise PermissionError(f"{path} is not a file of this user")
    return file


def _digest(name: str, content: bytes | BinaryIO) -> str:
    """With the name: one entry in the place of another is damage too."""
    digest = hashlib.sha256(name.encode() + b"\0")
    if isinstance(content, bytes):
        digest.update(content)
    else:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _touch(path: Path) -> None:
    """Notes that the entry was used now: eviction goes by the time of its seal."""
    with contextlib.suppress(OSError):
        os.utime(_seal_of(path))
