"""Keeping the build cache below its limit, and emptying it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from aotpack.building import usage
from aotpack.building.cache import BuildCache
from aotpack.building.locks import lock
from aotpack.building.usage import Entry, clear, entries, leftovers, limit_from_environment, parse_size, trim
from aotpack.errors import BuildError

SEAL = 65


def add(cache: BuildCache, number: int, size: int, suffix: str = ".o", age: float = 0) -> Path:
    path = cache.get(f"{number:064x}", suffix, lambda path: path.write_bytes(bytes(size)) and None)
    used = time.time() - age
    for file in (path, path.with_name(path.name + ".sha256")):
        os.utime(file, (used, used))
    return path


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1024", 1024),
        ("1k", 1024),
        ("500M", 500 << 20),
        ("2.5 GB", 5 << 29),
        ("3GiB", 3 << 30),
        ("1t", 1 << 40),
    ],
)
def test_sizes(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_size(text) == size
    monkeypatch.setenv("AOTPACK_CACHE_SIZE", text)
    assert limit_from_environment() == size


@pytest.mark.parametrize("text", ["much", "-1", "1X", "G", "1 2", "nan"])
def test_what_is_not_a_size(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTPACK_CACHE_SIZE", text)
    with pytest.raises(BuildError, match="AOTPACK_CACHE_SIZE"):
        BuildCache(tmp_path)


def test_the_limit_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AOTPACK_CACHE_SIZE", raising=False)
    assert limit_from_environment() == 5 << 30


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTPACK_CACHE_SIZE", str(3 * (1000 + SEAL)))
    cache = BuildCache(tmp_path)
    old, header, middle, new = (
        add(cache, i, 1000, suffix, age)
        for i, (suffix, age) in enumerate([(".o", 400), (".h.gch", 300), (".so", 200), (".o", 100)])
    )
    assert sum(entry.size for entry in entries(tmp_path)) == 4 * (1000 + SEAL)
    assert {entry.kind for entry in entries(tmp_path)} == {"objects", "modules", "precompiled headers"}
    # Used again, it is the newest; every way of asking for it counts.
    assert BuildCache(tmp_path).find(f"{0:064x}", ".o") == old
    cache.trim()
    assert [path.exists() for path in (old, header, middle, new)] == [True, False, True, True]
    assert cache.content(f"{2:064x}", ".so", lambda path: None) == bytes(1000)
    add(cache, 9, 1000)
    cache.trim()
    assert [path.exists() for path in (old, middle, new)] == [True, True, False]
    assert len(list(cache.folder.glob("??/*"))) == 2 * 3
    monkeypatch.setenv("AOTPACK_CACHE_SIZE", "0")
    add(cache, 10, 1000)
    BuildCache(tmp_path).trim()
    assert len(entries(tmp_path)) == 4


def test_an_entry_used_since_it_was_listed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = BuildCache(tmp_path)
    used, unused = add(cache, 1, 1000, age=400), add(cache, 2, 1000, age=300)
    listed = entries(tmp_path)

    def list_and_use(root: Path) -> list[Entry]:
        assert cache.find(f"{1:064x}", ".o") == used
        return listed

    monkeypatch.setattr(usage, "entries", list_and_use)
    assert trim(tmp_path, 1).files == 1
    assert used.exists()
    assert not unused.exists()


def test_an_entry_larger_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTPACK_CACHE_SIZE", "10")
    cache = BuildCache(tmp_path)
    add(cache, 1, 1000)
    cache.trim()
    assert entries(tmp_path) == []


def test_an_entry_that_is_being_made_stays(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    path = add(cache, 1, 1000)
    with lock(cache.folder / "locks" / f"{path.name[:32]}.lock"):
        assert trim(tmp_path, 1).files == 0
        assert clear(tmp_path).files == 0
    assert path.exists()
    assert clear(tmp_path).bytes == 1000 + SEAL


def test_what_earlier_versions_left(tmp_path: Path) -> None:
    def make(name: str, age_in_days: float = 0) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100))
        os.utime(path, (time.time() - age_in_days * 86400,) * 2)
        return path

    key = "ab" * 32
    fresh, old = make(f"ab/{key}.o"), make(f"cd/{key}.h.gch", 8)
    others = [
        make("ab/notes.txt"),
        make(f"ab/{key}.txt"),
        make("important/file.o"),
        make("file.o"),
        make("tmp/mine", 9),
    ]
    make(f"locks/{key[:32]}.lock", 8)
    make(f"tmp/{key[:16]}-123-0123abcd.o", 8)
    assert len(leftovers(tmp_path)) == 4
    BuildCache(tmp_path).trim()
    assert fresh.exists()
    assert not old.parent.exists()
    assert clear(tmp_path).files == 1
    assert not fresh.exists()
    assert all(path.exists() for path in others), "what is not the cache's own is never removed"
