"""Compilers that read headers before there is a source: the same objects, and none that outlives its build."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from aotpack.building.compiler import Compiler, find_compiler
from aotpack.building.waiting import WaitingCompiler

COMPILER = find_compiler()
FLAGS = ("-std=c++20", "-O2")
LINE = "#include <vector>"
SOURCE = """#include <vector>
#include <cstdio>
static std::vector<int> numbers(3);
int count() { std::printf("%s:%d", __FILE__, __LINE__); return int(numbers.size()); }
"""

pytestmark = pytest.mark.skipif(not COMPILER.can_wait, reason="for GCC alone")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_the_object_is_the_same(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "count.cpp").write_text(SOURCE)
    command = [*COMPILER.command, *FLAGS, "-c", "count.cpp", "-o", "count.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    with WaitingCompiler(COMPILER, FLAGS, "count.cpp", LINE) as waiting:
        made = waiting.compile(SOURCE)
        assert waiting.compile(SOURCE) is None, "it has ended"
    assert made == (tmp_path / "count.o").read_bytes()
    assert not list(temporary.iterdir())


def test_the_line_is_read_before_the_source_is_there(tmp_path: Path) -> None:
    header = tmp_path / "header.h"
    os.mkfifo(header)
    with WaitingCompiler(COMPILER, FLAGS, "count.cpp", f'#include "{header}"') as waiting:
        # This returns when the compiler has opened it.
        header.write_text("inline int one() { return 1; }\n")
        made = waiting.compile("int two() { return one() + one(); }\n")
    assert b"two" in (made or b"")


def test_sources_beyond_the_room_of_a_pipe() -> None:
    text = "".join(f"int function{i}() {{ return {i}; }}\n" for i in range(20_000))
    with WaitingCompiler(COMPILER, ("-O0",), "large.cpp", LINE) as waiting:
        made = waiting.compile(text)
    assert b"function19999" in (made or b"")


@pytest.mark.parametrize("line", [LINE, "#include <missing.h>"])
def test_a_failure_is_no_object(line: str, temporary: Path) -> None:
    with WaitingCompiler(COMPILER, FLAGS, "bad.cpp", line) as waiting:
        assert waiting.compile("int f( {" + "x" * 1_000_000) is None
    assert not list(temporary.iterdir())


def test_a_compiler_that_does_not_start(tmp_path: Path) -> None:
    with WaitingCompiler(Compiler(str(tmp_path / "none"), "none"), FLAGS, "count.cpp", LINE) as waiting:
        assert waiting.compile(SOURCE) is None


def test_one_that_is_not_needed_is_killed(tmp_path: Path, temporary: Path) -> None:
    header = tmp_path / "header.h"
    os.mkfifo(header)
    before = threading.active_count()
    # At an include that never comes.
    with WaitingCompiler(COMPILER, FLAGS, "count.cpp", f'#include "{header}"'):
        pass
    assert threading.active_count() == before
    assert not list(temporary.iterdir())
    # Nobody reads it any more.
    with pytest.raises(OSError, match="No such device"):
        os.open(header, os.O_WRONLY | os.O_NONBLOCK)


@pytest.mark.parametrize(
    ("path", "arguments", "expected"),
    [
        ("/usr/bin/g++", (), True),
        ("/usr/bin/x86_64-linux-gnu-g++-12", ("-m64",), True),
        ("/usr/bin/c++", (), True),
        ("/usr/bin/ccache", ("g++",), False),
        ("/usr/bin/g++", ("wrapper",), False),
        ("/usr/bin/clang++", (), False),
        ("/opt/my-compiler", (), False),
    ],
)
def test_who_can_wait(path: str, arguments: tuple[str, ...], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "realpath", lambda path: path)
    assert Compiler(path, "g++ (Debian) 12.2.0", arguments).can_wait is expected
    assert not Compiler(path, "Debian clang version 19.1", arguments).can_wait


def test_a_launcher_by_the_name_of_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "ccache").touch()
    (tmp_path / "g++").symlink_to(tmp_path / "ccache")
    assert not Compiler(str(tmp_path / "g++"), "g++ (Debian) 12.2.0").can_wait
