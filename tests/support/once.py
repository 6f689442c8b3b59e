"""What is made once a run, also where pytest-xdist runs the tests in several processes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aotpack.building.locks import lock


def run_folder(factory: pytest.TempPathFactory) -> Path:
    """A temporary folder of this run; its worker processes share it."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The run's folder `name`, filled by whoever asks first; `make` gets it empty. Not to be written to afterwards."""
    folder = run_folder(factory) / name
    made = folder.with_name(f"{name}.made")
    with lock(folder.with_name(f"{name}.lock")):
        if not made.exists():
            # A worker that failed or was killed may have left some of it.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            made.touch()
    return folder
