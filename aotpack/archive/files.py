"""Opening files that are to be read whole, regular files only; and making renames last."""

from __future__ import annotations

import contextlib
import os
import stat

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegularError(OSError):
    """There is something of that name, but it is no regular file."""


def kind_of(mode: int) -> str:
    """`a named pipe`, for the `st_mode` of what is no regular file."""
    return _KINDS.get(stat.S_IFMT(mode), "no file")


def open_regular(path: str | os.PathLike[str]) -> int:
    """A descriptor for reading a regular file; the caller closes it.

    Raises:
        NotRegularError: it is something else, such as a named pipe, of which opening would wait for a writer.
        OSError: it cannot be opened.
    """
    # Without O_NONBLOCK, opening a named pipe blocks; on regular files it has no effect.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise NotRegularError(f"{os.fspath(path)} is {kind_of(mode)}, not a regular file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Makes renames in a folder last through a power cut. Does nothing where the file system does not support it:
    renames are atomic without it.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
