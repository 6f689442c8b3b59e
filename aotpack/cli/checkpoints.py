"""Checkpoints of a training run: files `step-<number>.safetensors` in a folder, of which the newest are kept."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from aotpack.errors import InputError

if TYPE_CHECKING:
    from aotpack.runtime import Context

_NAME = re.compile(r"step-(\d+)\.safetensors")


class Checkpoints:
    """Those of one run.

    Args:
        folder: is made if it does not exist.
        every: steps from one to the next.
        keep: how many are kept.

    Attributes:
        newest: the last one that was written or read.
    """

    def __init__(self, folder: Path, every: int, keep: int) -> None:
        self._folder, self._every, self._keep = folder, every, keep
        self.newest: Path | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def restore(self, context: Context, *, resume: bool) -> int:
        """The number of steps that the newest checkpoint has, which becomes the state of `context`.

        Raises:
            InputError: the folder has checkpoints, and the run does not resume.
        """
        found = self._found()
        if not found:
            return 0
        if not resume:
            raise InputError(f"{self._folder} has checkpoints", hint="use --resume, or another folder")
        number, self.newest = found[-1]
        context.load_state(self.newest)
        return number

    def after(self, context: Context, step: int, *, last: bool) -> bool:
        """Writes a checkpoint after so many steps, if it is time; removes the oldest ones."""
        if not last and step % self._every:
            return False
        path = self._folder / f"step-{step:08}.safetensors"
        context.save_state(path)
        self.newest = path
        for _, old in self._found()[: -self._keep]:
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
        return True

    def _found(self) -> list[tuple[int, Path]]:
        names = ((_NAME.fullmatch(path.name), path) for path in self._folder.iterdir())
        return sorted((int(match[1]), path) for match, path in names if match is not None)
