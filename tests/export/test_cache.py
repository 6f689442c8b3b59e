"""The build cache, finding a compiler, and which sources a module links."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aotpack.errors import CompileError
from aotpack.export import native, toolchain
from aotpack.export.cache import BuildCache, default_folder

KEY = "ab" * 32


def temporaries(cache: BuildCache) -> list[Path]:
    return list((cache.folder / "tmp").iterdir())


class TestCache:
    def test_a_file_is_made_once(self, tmp_path: Path) -> None:
        cache = BuildCache(tmp_path)
        made: list[Path] = []

        def make(path: Path) -> None:
            made.append(path)
            path.write_text("result")

        first = cache.get(KEY, ".o", make)
        assert first.read_text() == "result"
        assert cache.get(KEY, ".o", make) == first
        other = BuildCache(tmp_path)
        assert other.get(KEY, ".o", make) == first
        assert len(made) == 1
        # A file counts by what was found when it was first asked for.
        assert (cache.hits, cache.misses, other.hits, other.misses) == (0, 1, 1, 0)
        assert temporaries(cache) == []

    def test_keys_and_suffixes_are_told_apart(self, tmp_path: Path) -> None:
        cache = BuildCache(tmp_path)
        # The first half of the keys is the same, on which locks and temporaries are named.
        wanted = [(KEY, ".o"), (KEY, ".so"), (KEY[:32] + "0" * 32, ".o")]
        paths = [cache.get(key, suffix, lambda p, t=key + suffix: p.write_text(t)) for key, suffix in wanted]
        assert [path.read_text() for path in paths] == [key + suffix for key, suffix in wanted]

    def test_threads_that_ask_at_once_make_it_once(self, tmp_path: Path) -> None:
        cache = BuildCache(tmp_path)
        made: list[int] = []
        barrier = threading.Barrier(8)

        def make(path: Path) -> None:
            made.append(1)
            time.sleep(0.1)
            path.write_text("result")

        def ask() -> str:
            barrier.wait()
            return cache.get(KEY, ".o", make).read_text()

        with ThreadPoolExecutor(8) as pool:
            assert [f.result() for f in [pool.submit(ask) for _ in range(8)]] == ["result"] * 8
        assert len(made) == 1

    def test_processes_that_ask_at_once_make_it_once(self, tmp_path: Path) -> None:
        script = textwrap.dedent(
            f"""
            import sys, time
            from pathlib import Path
            from aotpack.export.cache import BuildCache
            folder = Path(sys.argv[1])
            def make(path):
                with open(folder / "made", "a") as log:
                    log.write("x")
                time.sleep(0.5)
                path.write_text("result")
            cache = BuildCache(folder / "cache")
            print("ready", flush=True)
            sys.stdin.readline()
            print(cache.get({KEY!r}, ".o", make).read_text())
            """
        )
        command = [sys.executable, "-c", script, str(tmp_path)]
        pipe = subprocess.PIPE
        processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        outputs = []
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            outputs.append(process.communicate(timeout=60)[0])
        assert outputs == ["result\n"] * 2
        assert (tmp_path / "made").read_text() == "x"

    def test_a_failing_make_leaves_nothing(self, tmp_path: Path) -> None:
        cache = BuildCache(tmp_path)

        def fail(path: Path) -> None:
            path.write_text("half of a")
            raise CompileError("no such luck")

        with pytest.raises(CompileError, match="no such luck"):
            cache.get(KEY, ".o", fail)
        assert temporaries(cache) == []
        assert not list(tmp_path.rglob("*.o"))
        assert cache.get(KEY, ".o", lambda path: path.write_text("whole")).read_text() == "whole"  # type: ignore[arg-type, return-value]

    def test_a_make_that_writes_nothing_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            BuildCache(tmp_path).get(KEY, ".o", lambda path: None)

    def test_leftovers_of_killed_builds_go_once_they_are_old(self, tmp_path: Path) -> None:
        cache = BuildCache(tmp_path)
        old, fresh = tmp_path / "tmp" / "old.o", tmp_path / "tmp" / "fresh.o"
        for path in (old, fresh):
            path.write_text("half of a")
        os.utime(old, (time.time() - 48 * 3600,) * 2)
        kept = cache.get(KEY, ".o", lambda path: path.write_text("result"))  # type: ignore[arg-type, return-value]
        os.utime(kept, (0, 0))
        BuildCache(tmp_path)
        assert temporaries(cache) == [fresh]
        assert kept.exists()

    def test_where_it_lies(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("AOTPACK_CACHE_DIR", str(tmp_path / "a"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
        assert default_folder() == tmp_path / "a"
        monkeypatch.delenv("AOTPACK_CACHE_DIR")
        assert default_folder() == tmp_path / "b" / "aotpack"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert default_folder() == tmp_path / ".cache" / "aotpack"


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that is the whole PATH; compilers found in it are forgotten afterwards."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    toolchain.find_compiler.cache_clear()
    yield tmp_path
    toolchain.find_compiler.cache_clear()


def program(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


class TestCompiler:
    def test_none(self, bin_folder: Path) -> None:
        with pytest.raises(CompileError, match=r"looked for g\+\+, clang\+\+, c\+\+") as caught:
            toolchain.find_compiler()
        assert "apt-get install" in str(caught.value.hint)

    def test_the_first_of_those_there_are(self, bin_folder: Path) -> None:
        program(bin_folder / "c++", "echo some compiler 1.0")
        assert toolchain.find_compiler().version == "some compiler 1.0"
        toolchain.find_compiler.cache_clear()
        clang = program(bin_folder / "clang++", "echo clang version 17; echo Target: here")
        found = toolchain.find_compiler()
        assert (found.path, found.version, found.is_clang) == (str(clang), "clang version 17", True)

    def test_the_users_choice_is_not_replaced(self, bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program(bin_folder / "g++", "echo g++ 12")
        monkeypatch.setenv("CXX", "absent++")
        with pytest.raises(CompileError, match=r"looked for absent\+\+"):
            toolchain.find_compiler()
        assert toolchain.find_compiler("g++").version == "g++ 12"

    @pytest.mark.parametrize(
        "body", ["exit 3", "kill -9 $$", pytest.param("exit 0", id="says nothing")], ids=lambda body: str(body)
    )
    def test_one_that_does_not_run(self, bin_folder: Path, body: str) -> None:
        program(bin_folder / "g++", body)
        with pytest.raises(CompileError, match=r"g\+\+ does not run"):
            toolchain.find_compiler()

    def test_targets(self) -> None:
        for target in toolchain.compile_targets():
            assert f"-march={target}" in toolchain.target_flags(target)
        with pytest.raises(CompileError, match="cannot compile for the target 'z80'") as caught:
            toolchain.target_flags("z80")
        assert "x86-64-v3" in str(caught.value.hint)


class TestSources:
    def test_what_every_module_links(self) -> None:
        names = {path.name for path in native.sources_for([])}
        assert {"tensor.cpp", "copy.cpp", "convert.cpp"} <= names
        assert not any(path.parent.name == "ops" for path in native.sources_for([]))

    @pytest.mark.parametrize("shim", sorted(native.operator_groups()))
    def test_an_operators_sources_define_it_and_are_closed(self, shim: str) -> None:
        sources = native.sources_for([shim])
        assert sources == sorted(set(sources))
        folder = native.module_folder() / "ops"
        own = folder / f"{native.operator_groups()[shim]}.cpp"
        assert own in sources
        assert re.search(rf"\b{shim}\b", own.read_text()) or _made_by_macro(shim, own)
        for source in sources:
            assert source.is_file()
            for header in native.local_includes(source):
                implementation = header.with_suffix(".cpp")
                assert not implementation.is_file() or implementation in sources, f"{source} needs {implementation}"

    def test_modules_link_what_they_use(self) -> None:
        groups = native.operator_groups()
        assert len(set(groups.values())) > 3
        everything = set(native.sources_for(groups))
        for shim in groups:
            assert set(native.sources_for([shim])) < everything

    def test_hashes_follow_headers(self, tmp_path: Path) -> None:
        (tmp_path / "inner.h").write_text("int inner;")
        (tmp_path / "outer.h").write_text('#include "inner.h"\n')
        source = tmp_path / "a.cpp"
        source.write_text('#include "outer.h"\n#include <vector>\n#include "absent.h"\n')
        assert {path.name for path in native.local_includes(source)} == {"inner.h", "outer.h"}
        before = native.content_hash(source)
        (tmp_path / "inner.h").write_text("long inner;")
        native.content_hash.cache_clear()
        assert native.content_hash(source) != before


def _made_by_macro(shim: str, source: Path) -> bool:
    """Whether the definition's name is put together by a macro: its varying part is an argument there."""
    text = source.read_text()
    return any(
        re.search(rf"\b[A-Z_]+\([^)\n]*\b{shim[start:]}\b", text) for start in range(len("aoti_torch_"), len(shim))
    )
