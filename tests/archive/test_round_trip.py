"""What is written comes back, in one encoding only."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aotpack.archive import (
    ArchiveReader,
    FileSource,
    Manifest,
    decode_manifest,
    encode_manifest,
    layout,
    layout_constants,
    read_manifest,
    write_archive,
)
from aotpack.archive.manifest import FileEntry, Implementation, Kernel
from aotpack.archive.writer import stage_archive, write_all
from aotpack.errors import MalformedArchiveError
from aotpack.spec import Expr, TensorLeaf, TupleSpec, ValueLeaf
from tests.support.archives import Recipe, build_manifest
from tests.support.recipes import RECIPES

CODE = b"\x7fELF not really" * 700


def write(path: Path, recipe: Recipe = RECIPES["affine"]) -> Manifest:
    manifest, sources = build_manifest(recipe, CODE)
    size = write_archive(path, manifest, sources)
    assert path.stat().st_size == size
    return manifest


@pytest.mark.parametrize("name", RECIPES)
def test_manifest_round_trip(tmp_path: Path, name: str) -> None:
    manifest = write(tmp_path / "a.aotpack", RECIPES[name])
    read = read_manifest(tmp_path / "a.aotpack")
    assert dataclasses.replace(read, files=()) == manifest
    assert decode_manifest(encode_manifest(read)) == read


def test_rare_values_round_trip() -> None:
    manifest, _ = build_manifest(RECIPES["affine"], CODE)
    entry = manifest.entries[0]
    values = tuple(
        map(ValueLeaf, [None, True, False, 0, -1, 1.5, float("inf"), float("-inf"), float("nan"), "", "é\n☃"])
    )
    outputs = (dataclasses.replace(entry.outputs[0], shape=(Expr("batch // 2"), 0), order=(1, 0)),)
    entry = dataclasses.replace(entry, outputs=outputs, out_spec=TupleSpec((TensorLeaf(0), *values)))
    manifest = dataclasses.replace(manifest, entries=(entry,), producer={"ключ": "\u2028"}, constants=(), name="ö")
    module = dataclasses.replace(entry.variants[0].modules[0], file=0, constants=(), kernels=(Kernel("k"),))
    implementations = (Implementation.of_module(module, len(entry.inputs), len(entry.outputs)),)
    variant = dataclasses.replace(entry.variants[0], implementations=implementations)
    entry = dataclasses.replace(entry, variants=(variant,), goldens=())
    source = FileSource.from_bytes("modules/x.so", CODE)
    files = (FileEntry(source.path, source.size, source.sha256),)
    manifest = dataclasses.replace(manifest, entries=(entry,), files=files)
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert encode_manifest(manifest).isascii()
    assert encode_manifest(manifest).endswith(b"}\n")


def test_same_content_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a.aotpack")
    write(tmp_path / "b.aotpack")
    assert (tmp_path / "a.aotpack").read_bytes() == (tmp_path / "b.aotpack").read_bytes()


def test_it_is_a_zip_whose_data_is_aligned(tmp_path: Path) -> None:
    write(tmp_path / "a.aotpack")
    data = (tmp_path / "a.aotpack").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.aotpack") as file, ArchiveReader(tmp_path / "a.aotpack") as reader:
        assert file.testzip() is None
        assert file.namelist() == ["manifest.json", *(f.path for f in reader.manifest.files)]
        assert file.comment == b"aotpack:1:" + hashlib.sha256(file.read("manifest.json")).hexdigest().encode()
        for info in file.infolist():
            content = file.read(info)
            start = layout.PAGE * -(-(info.header_offset + 30 + len(info.filename) + 4) // layout.PAGE)
            assert data[start : start + len(content)] == content
            if info.filename != "manifest.json":
                assert reader.read(info.filename) == content
        assert reader.verify() == len(data)


def test_reading_parts(tmp_path: Path) -> None:
    write(tmp_path / "a.aotpack")
    with ArchiveReader(tmp_path / "a.aotpack") as reader:
        assert reader.read(1, 1, 3) == b"ELF"
        assert reader.read("modules/x86-64-v3/forward.so") == CODE
        with pytest.raises(ValueError, match="which has"):
            reader.read(1, 0, len(CODE) + 1)
        with pytest.raises(KeyError):
            reader.read("nothing")


def test_zip64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The limit is lowered instead of writing 4 GiB; Python's own zip reader must agree with what comes out.
    for limit in (100, 6000, 12000):
        monkeypatch.setattr(layout, "ZIP64_LIMIT", limit)
        path = tmp_path / f"{limit}.aotpack"
        write(path)
        with zipfile.ZipFile(path) as file:
            assert file.testzip() is None
            assert file.read("modules/x86-64-v3/forward.so") == CODE
        with ArchiveReader(path) as reader:
            reader.verify()


def test_four_gigabytes() -> None:
    """The headers alone: they are what changes, and need no 4 GiB beside them."""
    record = layout.Record("weights/big", 0x1_0000_0000, 0, 0)
    header = record.local_header()
    assert header[4:6] == b"\x2d\0"
    assert header[18:26] == b"\xff" * 8
    assert header[30 + 11 :][:4] == b"\x01\0\x10\0"
    assert (len(header) + record.padding) % layout.PAGE == 0
    after = layout.Record("modules/m", 5, 0, record.end)
    central = after.central_header()
    assert central[6:8] == b"\x2d\0"
    assert central[42:46] == b"\xff" * 4
    assert int.from_bytes(central[-8:], "little") == record.end
    assert after.local_header()[4:6] == b"\x0a\0"


def test_constants_are_aligned_and_stored_once() -> None:
    a, b, empty = bytes(range(100)), b"b" * 65, b""
    result = layout_constants([("a", a), ("b", memoryview(b)), ("tied", bytearray(a)), ("empty", empty)])
    (segment,) = result.segments
    content = b"".join(bytes(chunk) for chunk in segment.chunks())
    assert segment.path == f"weights/{hashlib.sha256(content).hexdigest()}"
    assert result.placements["a"] == result.placements["tied"]
    for key, expected in (("a", a), ("b", b), ("empty", empty)):
        place = result.placements[key]
        assert place.offset % 64 == 0
        assert content[place.offset : place.offset + place.nbytes] == expected
        assert place.sha256 == hashlib.sha256(expected).hexdigest()
    assert len(content) == 128 + 65 + 63  # the empty one ends it, aligned too


def test_segments_are_split() -> None:
    result = layout_constants([(i, bytes([i]) * 100) for i in range(5)], segment_limit=250)
    assert [segment.size for segment in result.segments] == [228, 228, 100]
    assert [place.segment for place in result.placements.values()] == [0, 0, 1, 1, 2]
    large = layout_constants([(0, b"x" * 10), (1, b"y" * 1000), (2, b"z" * 10)], segment_limit=250)
    assert [segment.size for segment in large.segments] == [10, 1000, 10]
    assert layout_constants([]).segments == ()
    with pytest.raises(ValueError, match="twice"):
        layout_constants([("a", b""), ("a", b"")])


def test_writes_take_at_most_a_mebibyte() -> None:
    data, taken = os.urandom((3 << 20) + 5), bytearray()

    def write_some(piece: memoryview) -> int:
        assert 0 < piece.nbytes <= 1 << 20
        some = piece[:700_001]
        taken.extend(some)
        return some.nbytes

    write_all(write_some, memoryview(data))
    assert taken == data


# ---- all or nothing -------------------------------------------------------------------------------------------------


def source_that(fails: Callable[[], None]) -> FileSource:
    good = FileSource.from_bytes("weights/0", b"data")

    def chunks() -> list[bytes]:
        fails()
        return [b"DATA"]

    return dataclasses.replace(good, chunks=chunks)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.aotpack"
    write(path)
    before = path.read_bytes()
    manifest, sources = build_manifest(RECIPES["affine"], CODE)

    def boom() -> None:
        raise RuntimeError("boom")

    for fails, error in ((boom, RuntimeError), (lambda: None, ValueError)):
        with pytest.raises(error):
            write_archive(path, manifest, [*sources, source_that(fails)])
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.aotpack"]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write(tmp_path / "a.aotpack")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.aotpack").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "not made of"),
        ("/a", "plain relative"),
        ("a//b", "plain relative"),
        ("a/../b", "plain relative"),
        ("./a", "plain relative"),
        ("a b", "not made of"),
        ("ä", "not made of"),
        ("x" * 256, "256 bytes"),
        ("manifest.json", "twice"),
        ("modules/x86-64-v3/forward.so", "twice"),
    ],
)
def test_paths_that_are_refused(tmp_path: Path, path: str, message: str) -> None:
    manifest, sources = build_manifest(RECIPES["affine"], CODE)
    with pytest.raises(ValueError, match=message):
        write_archive(tmp_path / "a.aotpack", manifest, [*sources, FileSource.from_bytes(path, b"")])
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    manifest, sources = build_manifest(RECIPES["affine"], CODE)
    with pytest.raises(MalformedArchiveError, match="out of range"):
        write_archive(tmp_path / "a.aotpack", manifest, sources[:1])
    assert not list(tmp_path.iterdir())


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    output = tmp_path / "a.aotpack"
    manifest, sources = build_manifest(RECIPES["affine"], CODE)
    dead = [tmp_path / name for name in (".a.aotpack.1-0123abcd.tmp", ".a.aotpack.77-ffffffff.tmp")]
    others = [tmp_path / name for name in (".b.aotpack.1-0123abcd.tmp", ".a.aotpack.x.tmp", "a.aotpack.1-0123abcd.tmp")]
    for path in dead + others:
        path.write_bytes(b"half")
    with stage_archive(output, manifest, sources) as staged:
        assert not any(path.exists() for path in dead)
        # One that a living writer is at stays.
        write(output)
        assert staged.path.exists()
        staged.commit()
    assert sorted(tmp_path.iterdir()) == sorted([output, *others])
