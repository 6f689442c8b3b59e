"""Archives with room for the manifest before the constants: these are written in place."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from aotpack.archive import ArchiveReader, ConstantWriter, FileSource, Manifest, layout_constants
from aotpack.archive.layout import PAGE, ROOM_NAME
from aotpack.archive.renumber import renumbered
from aotpack.archive.writer import room_of, stage_archive, write_archive
from tests.support.archives import build_manifest
from tests.support.recipes import RECIPES

ROOM = 16 * PAGE


DATA = random.Random(0).randbytes(100_000)


def parts(folder: Path, room: int = ROOM) -> list[FileSource]:
    """A room, and a segment."""
    layout = layout_constants([("a", DATA)], folder=folder, room=room)
    return list(layout.segments)


def behind(segments: Sequence[FileSource]) -> tuple[Manifest, list[FileSource]]:
    """An archive whose other files are behind these."""
    recipe = next(recipe for recipe in RECIPES.values() if not recipe.weights and recipe.updates is None)
    manifest, sources = build_manifest(recipe, b"code")
    numbers = {number: number + len(segments) for number in range(len(sources))}
    return renumbered(manifest, {}, numbers), [*segments, *sources]


def staged_inode(folder: Path) -> tuple[int, int, bytes]:
    """Of an archive with a room: its inode, that of the file of the constants, its bytes."""
    sources = parts(folder)
    held = sources[1].held
    assert held is not None
    spool = os.fstat(held._file.fileno()).st_ino  # type: ignore[attr-defined]
    with stage_archive(folder / "a.aotpack", *behind(sources)) as staged:
        staged.commit()
    path = folder / "a.aotpack"
    return path.stat().st_ino, spool, path.read_bytes()


def test_constants_are_written_once(tmp_path: Path) -> None:
    inode, spool, _ = staged_inode(tmp_path)
    assert inode == spool
    with ArchiveReader(tmp_path / "a.aotpack") as reader:
        reader.verify()
        assert reader.manifest.files[0].path == ROOM_NAME
        assert reader.read(1) == DATA
        assert room_of(reader.manifest) == ROOM
    assert [path.name for path in tmp_path.iterdir()] == ["a.aotpack"]


def test_copies_have_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, expected = staged_inode(tmp_path)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    inode, spool, content = staged_inode(tmp_path)
    assert inode != spool
    assert content == expected
    monkeypatch.setattr(os, "O_TMPFILE", os.O_CREAT | os.O_DIRECTORY)
    assert staged_inode(tmp_path)[2] == expected


def test_a_second_archive_of_the_same_constants_is_a_copy(tmp_path: Path) -> None:
    sources = parts(tmp_path)
    with stage_archive(tmp_path / "a.aotpack", *behind(sources)) as first:
        content = first.path.read_bytes()
        with stage_archive(tmp_path / "a.aotpack", *behind(sources)) as second:
            assert second.path.read_bytes() == content
            assert second.path.stat().st_ino != first.path.stat().st_ino
    assert not list(tmp_path.iterdir())


def test_a_manifest_that_needs_more_room(tmp_path: Path) -> None:
    sources = parts(tmp_path, room=PAGE)
    write_archive(tmp_path / "a.aotpack", *behind(sources))
    with ArchiveReader(tmp_path / "a.aotpack") as reader:
        reader.verify()
        assert reader.manifest.files[0].size == 0
        assert reader.read(1) == DATA


@pytest.mark.parametrize("room", range(4 * PAGE, 40 * PAGE, 3 * PAGE))
def test_rooms_of_all_sizes(room: int, tmp_path: Path) -> None:
    sources = parts(tmp_path, room=room)
    write_archive(tmp_path / "a.aotpack", *behind(sources))
    with ArchiveReader(tmp_path / "a.aotpack") as reader:
        assert room_of(reader.manifest) == room


def test_several_segments_are_copied(tmp_path: Path) -> None:
    data = [bytes([number]) * 100_000 for number in range(3)]
    layout = layout_constants(enumerate(data), segment_limit=150_000, folder=tmp_path, room=ROOM)
    assert [place.segment for place in layout.placements.values()] == [1, 2, 3]
    write_archive(tmp_path / "a.aotpack", *behind(layout.segments))
    with ArchiveReader(tmp_path / "a.aotpack") as reader:
        reader.verify()
        assert [reader.read(file) for file in (1, 2, 3)] == data


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        inode, spool, _ = staged_inode(tmp_path)
    finally:
        os.umask(before)
    assert inode == spool
    assert (tmp_path / "a.aotpack").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("room", [0, ROOM])
@pytest.mark.parametrize("kept", range(6))
def test_tensors_that_are_taken_back(kept: int, room: int, tmp_path: Path) -> None:
    values = [b"a" * 100, b"b" * 300, b"a" * 100, b"", b"c" * 70]
    others = [b"b" * 300, b"d" * 10]
    writer: ConstantWriter[int] = ConstantWriter(segment_limit=350, folder=tmp_path, room=room)
    for key, value in enumerate(values):
        writer.place(key, value)
    writer.keep(kept)
    assert len(writer) == min(kept, len(values))
    writer.place_all((10 + number, value) for number, value in enumerate(others))
    made = writer.layout()
    wanted = [*enumerate(values[:kept]), *((10 + number, value) for number, value in enumerate(others))]
    expected = layout_constants(wanted, segment_limit=350, folder=tmp_path, room=room)
    assert made.placements == expected.placements
    described: Callable[[FileSource], Any] = lambda file: (file.path, file.size, file.sha256, file.crc32)  # noqa: E731
    assert list(map(described, made.segments)) == list(map(described, expected.segments))
    for segment in made.segments[room > 0 :]:
        assert hashlib.sha256(b"".join(map(bytes, segment.chunks()))).hexdigest() == segment.sha256
