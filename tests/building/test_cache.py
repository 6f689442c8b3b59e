"""The build cache: what it makes once, and that damage is never used."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aotpack.building.cache import BuildCache
from aotpack.errors import CompileError

KEY = "ab" * 32


def temporaries(cache: BuildCache) -> list[Path]:
    return [*(cache.folder / "tmp").iterdir(), *(cache.folder / "locks").iterdir()]


def writes(content: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(content)

    return make


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
            from aotpack.building.cache import BuildCache
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
        assert not list(tmp_path.rglob("*.o*"))
        assert cache.get(KEY, ".o", lambda path: path.write_text("whole")).read_text() == "whole"  # type: ignore[arg-type, return-value]

    def test_a_make_that_writes_nothing_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            BuildCache(tmp_path).get(KEY, ".o", lambda path: None)

    def test_one_whose_file_does_not_end_with_its_suffix_alone(self, tmp_path: Path) -> None:
        cache = BuildCache(tmp_path)
        # GCC looks for NAME.h.gch beside NAME.h.
        header, compiled = (cache.get(KEY, suffix, writes(b"x")) for suffix in (".h", ".h.gch"))
        assert str(compiled) == f"{header}.gch"


def _flip(path: Path, generator: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    path.write_bytes(content)


def _swap(path: Path, generator: random.Random) -> None:
    """Another entry, with its right hash."""
    other = path.parent.parent / "cd" / ("cd" * 32 + ".o")
    for suffix in ("", ".sha256"):
        path.with_name(path.name + suffix).write_bytes(other.with_name(other.name + suffix).read_bytes())


def _replace_by(make: Callable[[Path], None]) -> Callable[[Path, random.Random], None]:
    def damage(path: Path, generator: random.Random) -> None:
        path.unlink()
        make(path)

    return damage


DAMAGE: dict[str, Callable[[Path, random.Random], None]] = {
    "a flipped bit": _flip,
    "a flipped bit of the hash": lambda path, generator: _flip(path.with_name(path.name + ".sha256"), generator),
    "empty": lambda path, _: path.write_bytes(b"") and None,
    "cut": lambda path, generator: os.truncate(path, generator.randrange(path.stat().st_size)),
    "longer": lambda path, _: path.write_bytes(path.read_bytes() + bytes(1)) and None,
    "no hash": lambda path, _: path.with_name(path.name + ".sha256").unlink(),
    "an empty hash": lambda path, _: path.with_name(path.name + ".sha256").write_bytes(b"") and None,
    "gone": lambda path, _: path.unlink(),
    "another entry": _swap,
    "a link": _replace_by(lambda path: path.symlink_to("/etc/passwd")),
    "a pipe": _replace_by(lambda path: os.mkfifo(path)),
}


class TestDamage:
    @pytest.mark.parametrize("name", DAMAGE)
    def test_damage_is_never_used(self, name: str, tmp_path: Path) -> None:
        generator = random.Random(name)
        good = generator.randbytes(5000)
        cache = BuildCache(tmp_path)
        other = BuildCache(tmp_path)
        for _ in range(3):
            path = cache.get(KEY, ".o", writes(good))
            cache.get("cd" * 32, ".o", writes(b"another"))
            DAMAGE[name](path, generator)
            # The one that made it, one that did not, and one that reads.
            assert cache.find(KEY, ".o") is None
            assert other.content(KEY, ".o", writes(good)) == good
            DAMAGE[name](path, generator)
            assert cache.get(KEY, ".o", writes(good)).read_bytes() == good
            assert cache.find(KEY, ".o") == path
        assert temporaries(cache) == []

    def test_what_is_read_is_what_was_compared(self, tmp_path: Path) -> None:
        """A file that changes all the time is never read half old, half new."""
        cache, stop = BuildCache(tmp_path), threading.Event()
        contents = [bytes([i]) * 50_000 for i in (1, 2)]

        def disturb() -> None:
            while not stop.is_set():
                cache.path(KEY, ".o").write_bytes(contents[1])

        cache.get(KEY, ".o", writes(contents[0]))
        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            for _ in range(50):
                assert cache.content(KEY, ".o", writes(contents[0])) == contents[0]
        finally:
            stop.set()
            thread.join()

    def test_killed_at_any_moment(self, tmp_path: Path) -> None:
        """Processes that write entries are killed at random moments: no half entry, no lock and no folder stays."""
        script = textwrap.dedent(
            """
            import sys
            from pathlib import Path
            from aotpack.building.cache import BuildCache
            print("ready", flush=True)
            for i in range(10**6):
                key = f"{i % 7:064x}"
                cache = BuildCache(Path(sys.argv[1]))
                cache.content(key, ".o", lambda path: path.write_bytes(key.encode() * 3000))
                cache.path(key, ".o").unlink()
            """
        )
        generator = random.Random(7)
        for _ in range(12):
            process = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(generator.random() * 0.1)
            process.kill()
            process.communicate()
        cache = BuildCache(tmp_path)
        for i in range(7):
            key = f"{i:064x}"
            assert cache.content(key, ".o", writes(key.encode() * 3000)) == key.encode() * 3000
        assert temporaries(cache) == []
