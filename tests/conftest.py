"""What the tests of the Python side share: archives made of small C modules, without torch."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.archives import CompileC, make_archive

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> CompileC:
    """Compiles C that implements module_abi.h; equal sources once per run."""
    folder = tmp_path_factory.mktemp("modules")
    known: dict[str, bytes] = {}

    def compile_source(source: str) -> bytes:
        if source not in known:
            path = folder / f"{len(known)}.c"
            path.write_text(source)
            output = path.with_suffix(".so")
            flags = ["-std=gnu11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Werror"]
            include = ROOT / "csrc" / "include"
            subprocess.run(["cc", *flags, "-I", str(include), str(path), "-o", str(output), "-lm"], check=True)
            known[source] = output.read_bytes()
        return known[source]

    return compile_source


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build cache for the whole run: kernels are compiled once."""
    return tmp_path_factory.mktemp("build-cache")


@pytest.fixture(scope="session")
def archive(compile_c: CompileC, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The path of a ready archive by the name of its recipe (tests/support/recipes.py). Not to be written to."""
    from tests.support.recipes import RECIPES

    folder = tmp_path_factory.mktemp("archives")

    def get(name: str) -> Path:
        path = folder / f"{name}.aotpack"
        return path if path.exists() else make_archive(path, RECIPES[name], compile_c)

    return get
