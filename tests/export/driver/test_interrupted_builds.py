"""Builds that are killed or interrupted, and caches that are damaged: nothing half made, nothing left behind."""

from __future__ import annotations

import glob
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.support.warm_python import Started, warm_python


def test_killed_builds_leave_nothing_half_made(tmp_path: Path) -> None:
    """Builds are killed at random moments: the output stays as it was, and the next build is not hindered."""
    cache, output, temporary = tmp_path / "cache", tmp_path / "model.aotpack", tmp_path / "temporary"
    temporary.mkdir()
    output.write_bytes(b"the archive from before")
    command = ("-c", _BUILD_SCRIPT, cache, output)
    environment = os.environ | {"TMPDIR": str(temporary)}
    generator = random.Random(3)
    # Each goes further than the one before: the cache has what those finished.
    for _ in range(2):
        process = warm_python().start(*command, env=environment)
        _wait_for_work(cache, process)
        time.sleep(generator.random() * 2)
        # The process alone: its compilers must go by themselves.
        if process.running():
            os.kill(process.pid, signal.SIGKILL)
        if process.wait().returncode == 0:
            break
        _wait_for_compilers(temporary)
        # Killed between the last step of the build and the end of the process, it has left the whole archive.
        if output.read_bytes() != b"the archive from before":
            aotpack.load(output, verify="full")
            break
    assert warm_python().run(*command, env=environment).returncode == 0
    assert aotpack.load(output, verify="full")(torch.zeros(4, 8)).shape == (4, 8)
    assert not list(cache.glob("*/tmp/*"))
    assert not list(cache.glob("*/locks/*"))
    assert not list(temporary.glob("aotpack-*"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "model.aotpack", "temporary"]


def _wait_for_work(cache: Path, process: Started) -> None:
    """Until something is being made in the cache."""
    deadline = time.time() + 120
    while not list(cache.glob("*/tmp/*/*")) and time.time() < deadline and process.running():
        time.sleep(0.02)


def _wait_for_compilers(temporary: Path) -> None:
    """Until no process works in a folder below."""
    deadline = time.time() + 60
    while any(_folder_of(process).startswith(str(temporary)) for process in glob.glob("/proc/[0-9]*")):
        assert time.time() < deadline, "a compiler outlives its build"
        time.sleep(0.02)


def _folder_of(process: str) -> str:
    try:
        return os.readlink(f"{process}/cwd")
    except OSError:
        # It has ended, or is another user's.
        return ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_build_that_is_interrupted_leaves_nothing(number: signal.Signals, code: int, tmp_path: Path) -> None:
    cache, temporary = tmp_path / "cache", tmp_path / "temporary"
    temporary.mkdir()
    (tmp_path / "net.py").write_text(_SOURCE)
    environment = os.environ | {"TMPDIR": str(temporary), "AOTPACK_CACHE_DIR": str(cache)}
    command = ("-m", "aotpack.cli.app", "build", "net.py", "-o", "net.aotpack")
    process = warm_python().start(*command, cwd=tmp_path, env=environment)
    _wait_for_work(cache, process)
    assert process.running()
    os.kill(process.pid, number)
    done = process.wait()
    assert done.returncode == code, done.stderr
    assert done.stderr.splitlines()[-1] in ("interrupted", "terminated")
    _wait_for_compilers(temporary)
    assert not list(cache.glob("*/tmp/*"))
    assert not list(temporary.glob("aotpack-*"))
    assert not list(tmp_path.glob("*.aotpack"))


def test_a_damaged_cache_changes_no_archive(tmp_path: Path) -> None:
    folder, generator = tmp_path / "cache", random.Random(5)
    options = BuildOptions(cache_dir=folder)
    program = aot_export(torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Softmax(-1)), (torch.randn(4, 8),))
    build_archive(program, tmp_path / "first.aotpack", options=options)
    entries = sorted(path for path in folder.glob("*/??/*") if path.suffix in (".o", ".so"))
    # Those of the generated code, and the module: our own may come with the package.
    assert len(entries) >= 3
    for i, path in enumerate(entries):
        content = bytearray(path.read_bytes())
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(b"" if i % 2 else content)
    report = build_archive(program, tmp_path / "second.aotpack", options=options)
    assert report.cache_hits == 0
    assert (tmp_path / "first.aotpack").read_bytes() == (tmp_path / "second.aotpack").read_bytes()


_SOURCE = """
import torch
def model():
    return torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Softmax(-1))
def example_inputs():
    return (torch.zeros(4, 8),)
"""


_BUILD_SCRIPT = """
import sys, torch
from aotpack.export import BuildOptions, aot_export, build_archive
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Softmax(-1)).eval()
build_archive(aot_export(model, (torch.zeros(4, 8),)), sys.argv[2], options=BuildOptions(cache_dir=sys.argv[1]))
"""
