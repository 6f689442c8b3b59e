"""Folders that appear when they are complete."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from aotpack.errors import BuildError


def check_free(folder: Path) -> None:
    """Raises BuildError unless a folder can be created at this path."""
    if not folder.absolute().parent.is_dir():
        raise BuildError(f"the folder {folder.parent} does not exist", hint="create it, or choose another output")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise BuildError(f"the output {folder} exists and is not a folder", hint="choose another output")
    if folder.exists() and any(folder.iterdir()):
        raise BuildError(f"the folder {folder} is not empty", hint="choose another folder, or remove it first")


@contextlib.contextmanager
def staged_folder(folder: Path) -> Iterator[Path]:
    """A folder beside `folder`, which is removed if it is still there at the end."""
    absolute = folder.absolute()
    room = absolute.with_name(f".{absolute.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    room.mkdir()
    try:
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)
