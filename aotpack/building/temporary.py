"""Private temporary folders: an unpredictable name, mode 0700, and a lock for as long as the owner lives.

The lock (flock on the folder) is released by the kernel, also after SIGKILL. So a folder whose lock is free belongs to
a process that is gone, whatever its PID namespace, and `sweep` removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "aotpack-build-"


@contextlib.contextmanager
def private_folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder in `parent` (by default the temporary folder of the system), removed at the end, also on errors."""
    folder, descriptor = _create(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def sweep(parent: Path | None = None) -> int:
    """Removes private folders in `parent` whose owner is dead; how many.

    Folders of other users, links and folders that cannot be locked stay.
    """
    removed = 0
    with contextlib.suppress(OSError), os.scandir(parent or tempfile.gettempdir()) as found:
        for item in found:
            if item.name.startswith(PREFIX):
                removed += _remove_if_dead(item.path)
    return removed


def _create(parent: Path | None) -> tuple[Path, int]:
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        # Before its lock is taken, a sweep of another process may remove the folder: then another one is made.
        with contextlib.suppress(OSError):
            # Waits for a sweep that holds the lock. Without locks, on some file systems, no sweep removes anything.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_at(descriptor, folder):
            return Path(folder), descriptor
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Whether the lock was free. A file system without locks has none that are free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _remove_if_dead(path: str) -> bool:
    try:
        about = os.lstat(path)
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if not _lock(descriptor) or not _is_at(descriptor, path):
            return False
        shutil.rmtree(path, ignore_errors=True)
        return True
    finally:
        os.close(descriptor)
