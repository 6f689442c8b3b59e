"""Where the build cache lies, and that no other user can write to it: what it holds becomes code of archives."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aotpack.errors import BuildError

# The layout of the entries. Another one gets another folder, so that versions of aotpack can share one cache folder.
LAYOUT = "v2"

_HINT = "set AOTPACK_CACHE_DIR to a folder that you own and only you can write to"


def default_folder() -> Path:
    """`$AOTPACK_CACHE_DIR`, else `aotpack` in the XDG cache folder.

    Where that cannot be made, a folder of this user's in the temporary folder.
    """
    candidates = list(_candidates())
    return next(filter(_can_be_made, candidates), candidates[0])


def open_folder(folder: Path | None = None) -> tuple[Path, Path]:
    """Makes the cache folder, by default `default_folder()`, and the part of it that is this user's: both paths.

    Users who share a cache folder have a part each, which only they can read or write; entries are not shared. Without
    `folder` and `$AOTPACK_CACHE_DIR`, a home folder that cannot be written falls back to the temporary folder.

    Raises:
        BuildError: the folder cannot be made, is another user's, or others could replace what is in it.
    """
    failure: OSError | None = None
    for root in [folder] if folder is not None else _candidates():
        root = Path(os.path.abspath(root))
        try:
            os.makedirs(root, mode=0o700, exist_ok=True)
            return root, _own_part(root)
        except OSError as error:
            failure = failure or error
    raise BuildError(f"the build cache cannot be used: {failure}", hint=_HINT) from failure


def _can_be_made(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def own_part(root: Path) -> Path:
    """Where this user's part of a cache folder is, or would be."""
    return root / f"{LAYOUT}-{os.geteuid()}"


def _candidates() -> Iterator[Path]:
    explicit = os.environ.get("AOTPACK_CACHE_DIR")
    if explicit:
        yield Path(os.path.abspath(explicit))
        return
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: relative paths are invalid and ignored.
    if os.path.isabs(base):
        yield Path(base) / "aotpack"
    else:
        home = os.environ.get("HOME", "")
        if not os.path.isabs(home):
            # KeyError: the user has no entry in the password database.
            with contextlib.suppress(KeyError):
                home = pwd.getpwuid(os.getuid()).pw_dir
        if os.path.isabs(home):
            yield Path(home) / ".cache" / "aotpack"
    yield Path(tempfile.gettempdir()).absolute() / f"aotpack-cache-{os.geteuid()}"


def _own_part(root: Path) -> Path:
    about = root.stat()
    if about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX:
        raise BuildError(
            f"the build cache {root} is unsafe: every user can replace what is in it",
            hint=f"chmod o-w {root}, or chmod +t {root} if several users share it",
        )
    part = own_part(root)
    with contextlib.suppress(FileExistsError):
        part.mkdir(mode=0o700)
    about = part.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise BuildError(f"the build cache {part} is unsafe: it is not a folder that belongs to you", hint=_HINT)
    if stat.S_IMODE(about.st_mode) & 0o077:
        part.chmod(0o700)
    return part
