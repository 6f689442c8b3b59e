"""Locks between threads and processes, by files that only exist while somebody holds or awaits them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_POLL_SECONDS = 0.02
# What file systems without locks answer.
_NO_LOCKS = frozenset([errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Holds the lock at `path`, waiting for it. The kernel releases it when the process dies.

    On a file system without locks there is no waiting.
    """
    descriptor = None
    while descriptor is None:
        descriptor = _attempt(path)
        if descriptor is None:
            # Polling keeps the interpreter responsive to signals.
            time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        _release(path, descriptor)


@contextlib.contextmanager
def lock_if_free(path: Path) -> Iterator[bool]:
    """Like `lock`, without waiting: whether the lock is held."""
    descriptor = _attempt(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _release(path, descriptor)


def _attempt(path: Path) -> int | None:
    # Opened anew each time: the last holder of the lock removed its file.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            return descriptor
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return descriptor
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            os.close(descriptor)
            raise
    os.close(descriptor)
    return None


def _release(path: Path, descriptor: int) -> None:
    # Removed while it is held: others see that the file is another one, or none, and open it anew.
    with contextlib.suppress(OSError):
        os.unlink(path)
    os.close(descriptor)
