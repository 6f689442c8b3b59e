"""What a process that runs archives imports: next to nothing, and never torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Beyond what Python itself has loaded at start.
ALLOWED = {
    "__future__",
    "aotpack",
    "aotpack._version",
    "aotpack.runtime",
    *(f"aotpack.runtime.{name}" for name in ("_native", "context", "entry", "model", "options")),
    "atexit",
    "struct",  # array, memoryview
    "_struct",
}


def modules_after(code: str) -> set[str]:
    """The modules that `code` has loaded in a fresh process which cannot import torch."""
    start = """
import sys, json
sys.modules['torch'] = None
if any("Editable" in type(f).__name__ or type(f).__module__.startswith("_editable") for f in sys.meta_path):
    import importlib.machinery, importlib.util  # the hook of an editable installation does
before = set(sys.modules)
"""
    result = subprocess.run(
        [sys.executable, "-c", f"{start}{code}\nprint(json.dumps(sorted(set(sys.modules) - before)))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_import_alone_loads_nothing() -> None:
    assert modules_after("import aotpack; aotpack.__version__") <= {"__future__", "aotpack", "aotpack._version"}


def test_load_and_call_import_nothing(archive: Callable[[str], Path]) -> None:
    code = f"""
import aotpack
model = aotpack.load({str(archive("affine"))!r})
x = memoryview(bytearray(32)).cast("f", [2, 4])
assert model(x).tolist() == [[1.0] * 4] * 2
assert model(x=x).shape == (2, 4)
"""
    assert modules_after(code) <= ALLOWED


@pytest.mark.parametrize(
    "module", ["aotpack.archive", "aotpack.runtime", "aotpack.runtime.structure", "aotpack.errors"]
)
def test_no_torch_and_no_numpy(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert not {name for name in loaded if name.split(".")[0] in ("torch", "numpy", "typer", "rich")}


def test_command_line_imports_no_torch_and_no_numpy() -> None:
    loaded = modules_after("import aotpack.cli.app")
    assert not {name for name in loaded if name.split(".")[0] in ("torch", "numpy")}


def test_lazy_names() -> None:
    import aotpack

    assert set(aotpack.__all__) <= set(dir(aotpack))
    for name in aotpack.__all__:
        assert getattr(aotpack, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        aotpack.nothing  # noqa: B018
