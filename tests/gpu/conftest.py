"""Archives that are built once, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.torchless import ROOT

Built = Callable[[str], Path]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The archive of a case of `build_archives`, by its name. `AOTPACK_GPU_ARCHIVES` names a folder that has some."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    given = os.environ.get("AOTPACK_GPU_ARCHIVES")
    folder = Path(given) if given else tmp_path_factory.mktemp("archives")

    def build(name: str) -> Path:
        path = folder / f"{name}.aotpack"
        if not path.exists():
            command = [sys.executable, "-m", "tests.gpu.build_archives", str(folder), name]
            subprocess.run(command, cwd=ROOT, check=True)
        return path

    return build
