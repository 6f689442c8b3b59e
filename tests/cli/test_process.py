"""The program as users start it: in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# torch cannot be imported: None in sys.modules makes every import of it fail.
NO_TORCH = "import sys; sys.modules['torch'] = None; from aotpack.cli.app import main; main()"


def run(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", NO_TORCH, *map(str, args)], capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_all_but_build_work_without_torch(archive: Callable[[str], Path]) -> None:
    path = archive("affine")
    for args in (
        ["run", path, "--random"],
        ["bench", path, "-n", "3"],
        ["inspect", path],
        ["verify", path],
        ["doctor"],
    ):
        result = run(*args, "--json")
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)


def test_the_package_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "aotpack", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr
    assert "aotpack build" in result.stdout


def test_version() -> None:
    import aotpack

    assert run("--version").stdout == f"aotpack {aotpack.__version__}\n"


def test_exit_codes(tmp_path: Path) -> None:
    assert run("inspect", tmp_path / "nothing").returncode == 1
    assert run("inspect").returncode == 2
    assert run().returncode in (0, 2)
    result = run("build", "model.py", "-o", tmp_path / "a.aotpack")
    assert result.returncode == 1
    assert "error:" in result.stderr
    assert "Traceback" not in result.stderr


def test_what_is_wrong_with_paths_is_said_before_torch_is_needed(tmp_path: Path) -> None:
    source = tmp_path / "net.py"
    source.write_text("raise AssertionError('the source was run')")
    for output, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "a.aotpack", "does not exist"),
        ("/dev/null", "is a device"),
        (source, "is also an input of the build"),
    ):
        result = run("build", source, "-o", output)
        assert result.returncode == 1
        assert message in result.stderr
    result = run("build", tmp_path / "nothing.py", "-o", tmp_path / "a.aotpack")
    assert (result.returncode, "no such file" in result.stderr) == (1, True)
    result = run("build", source, "-o", tmp_path / "a.aotpack", "-t", "z80")
    assert result.returncode == 1
    assert "'z80'" in result.stderr
    assert "supported targets are x86-64-v2, x86-64-v3, x86-64-v4, x86-64-v4-bf16, x86-64-v4-amx" in result.stderr
    result = run("build", tmp_path / "weights.ckpt", "-o", tmp_path / "a.aotpack")
    assert (result.returncode, "--weights" in result.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [["inspect"], ["inspect", "--json"], ["verify"], ["run", "--random"]])
@pytest.mark.parametrize("lines", [0, 1])
def test_output_that_is_no_longer_read(archive: Callable[[str], Path], arguments: list[str], lines: int) -> None:
    command, *options = arguments
    path = archive("affine")
    # Unbuffered, a command meets the closed pipe at its first line; otherwise when it ends.
    environment = {**os.environ, **({"PYTHONUNBUFFERED": "1"} if lines else {})}
    reading, writing = os.pipe()
    if not lines:
        os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-c", NO_TORCH, command, str(path), *options],
        stdout=writing,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment,
        text=True,
    )
    os.close(writing)
    if lines:
        os.read(reading, 1)
        os.close(reading)
    _, error = process.communicate(timeout=60)
    assert not any(word in error for word in ("error", "Traceback", "Exception", "hint"))
    # What fits the pipe may have been written before it was closed.
    assert process.returncode == 141 if not lines else process.returncode in (0, 141)
