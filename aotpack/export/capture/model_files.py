"""Recognizes the formats of model files: `.pt`, `.pth` and `.pt2` are extensions of very different formats.

Only the names in the container are read, so nothing of an unknown file is run.
"""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import PurePosixPath
from typing import NamedTuple

_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_SAVE = "create it with torch.export.save(torch.export.export(model, args), path)"
_SOURCE = (
    "write a model.py with model(), which creates the module and loads the file, and example_inputs(); "
    "then: aotpack build model.py"
)


class Foreign(NamedTuple):
    """A file that is not an exported program: what it is, and a remedy."""

    what: str
    hint: str


def foreign(path: str | os.PathLike[str]) -> Foreign | None:
    """What a file is if it is not what `torch.export.save` writes; None if it may be such a file.

    Raises:
        OSError: it cannot be read.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        return Foreign("a folder" if stat.S_ISDIR(mode) else "no regular file", _SAVE)
    with open(path, "rb") as file:
        head = file.read(16)
    if not head:
        return Foreign("an empty file", _SAVE)
    if head.startswith(_PICKLES):
        return Foreign("a pickle from an older version of torch.save", _SOURCE)
    if not zipfile.is_zipfile(path):
        if head.startswith(b"PK\x03\x04"):
            return Foreign("an incomplete zip file whose end is missing", _SAVE)
        return Foreign("a file of an unknown format", _SAVE)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [PurePosixPath(name) for name in archive.namelist()]
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError):
        return Foreign("a damaged zip file", _SAVE)
    return _by_names(names)


def _by_names(names: list[PurePosixPath]) -> Foreign | None:
    # What torch writes lies below one folder; its first version for exported programs had none.
    below = {PurePosixPath(*name.parts[1:]).as_posix() for name in names if len(name.parts) > 1}
    own = {name.as_posix() for name in names}
    if "manifest.json" in own and any(name.startswith("modules/") for name in own):
        return Foreign("an aotpack archive", "run it: aotpack run, or aotpack.load")
    if "serialized_exported_program.json" in own | below:
        return None
    if "archive_format" in below:
        if any(name.startswith("models/") for name in below):
            return None
        return Foreign(
            "an AOTInductor package of compiled code, not a program",
            "build from the model or from its exported program",
        )
    if "constants.pkl" in below or any(name.startswith("code/") for name in below):
        return Foreign(
            "a TorchScript file (torch.jit.save)",
            "TorchScript is not supported: write a model.py with model(), which creates the module in Python, and "
            "example_inputs(); then: aotpack build model.py",
        )
    if "data.pkl" in below:
        return Foreign("a file from torch.save: weights or a pickled module", _SOURCE)
    return Foreign("a zip file of another format", _SAVE)
