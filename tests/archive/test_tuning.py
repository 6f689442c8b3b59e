"""The file of tunings in an archive: what is written is read back, everything else stays, and what is malformed is an
error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aotpack.archive import ArchiveReader, read_manifest
from aotpack.archive.encode import canonical
from aotpack.archive.tuning import (
    TUNING_PATH,
    Choice,
    Tuning,
    decode_tunings,
    encode_tunings,
    read_tunings,
    replace_tunings,
)
from aotpack.errors import MalformedArchiveError, TamperedArchiveError

TUNINGS = (
    Tuning("x86-64-v3", "GenuineIntel-6-207-2", 1, ()),
    Tuning("x86-64-v3", "GenuineIntel-6-207-2", 2, (Choice("0123456789abcdef", 0x12, "linear", (6, 8, 32, 64), 1.25),)),
    Tuning(
        "x86-64-v4", "AuthenticAMD-26-2-1", 2, (Choice("0" * 16, 1, "a", (-1,), 1.0), Choice("f" * 16, 2, "b", (), 2.0))
    ),
)


def test_round_trip() -> None:
    data = encode_tunings(TUNINGS)
    assert decode_tunings(data) == TUNINGS
    assert encode_tunings(reversed(TUNINGS)) == data


def test_one_for_each_target_processor_and_number_of_threads() -> None:
    with pytest.raises(ValueError, match="two tunings"):
        encode_tunings((TUNINGS[0], TUNINGS[0]))


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    value = json.loads(encode_tunings(TUNINGS))
    change(value["tuning"][1])
    return canonical(value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]\n",
        b"[" * 100_000,
        canonical({"tuning": 7}),
        canonical({"tuning": [7]}),
        canonical({"tuning": [], "more": 1}),
        encode_tunings(TUNINGS)[:-1],
        encode_tunings(TUNINGS) + b" ",
        changed(lambda each: each.pop("threads")),
        changed(lambda each: each.update(threads=0)),
        changed(lambda each: each.update(threads=True)),
        changed(lambda each: each.update(processor="")),
        changed(lambda each: each.update(target=3)),
        changed(lambda each: each.update(choices={})),
        changed(lambda each: each["choices"].append(each["choices"][0])),
        changed(lambda each: each["choices"][0].update(site="0123456789ABCDEF")),
        changed(lambda each: each["choices"][0].update(site="7")),
        changed(lambda each: each["choices"][0].update(choice=-1)),
        changed(lambda each: each["choices"][0].update(choice=1 << 32)),
        changed(lambda each: each["choices"][0].update(choice=1.0)),
        changed(lambda each: each["choices"][0].update(kernel="")),
        changed(lambda each: each["choices"][0].update(numbers=[1 << 63])),
        changed(lambda each: each["choices"][0].update(numbers="12")),
        changed(lambda each: each["choices"][0].update(speedup="1")),
    ],
)
def test_what_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedArchiveError):
        decode_tunings(data)


def test_an_archive_keeps_everything_else(archive: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "tuned.aotpack"
    path.write_bytes(archive("affine").read_bytes())
    path.chmod(0o640)
    before = read_manifest(path)
    with ArchiveReader(path) as reader:
        files = {file.path: reader.read(file.path) for file in before.files}
        assert read_tunings(reader) == ()
    assert replace_tunings(path, TUNINGS)
    assert not replace_tunings(path, TUNINGS)
    assert path.stat().st_mode & 0o777 == 0o640
    with ArchiveReader(path) as reader:
        reader.verify()
        after = reader.manifest
        assert (after.entries, after.constants, after.format_version) == (
            before.entries,
            before.constants,
            before.format_version,
        )
        assert after.files[:-1] == before.files
        assert {file.path: reader.read(file.path) for file in after.files[:-1]} == files
        assert read_tunings(reader) == TUNINGS
    assert replace_tunings(path, TUNINGS[:1])
    with ArchiveReader(path) as reader:
        reader.verify()
        assert [file.path for file in reader.manifest.files] == [*files, TUNING_PATH]
        assert read_tunings(reader) == TUNINGS[:1]
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_archive_is_not_written(archive: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "damaged.aotpack"
    data = bytearray(archive("affine").read_bytes())
    with ArchiveReader(archive("affine")) as reader:
        module = reader.read(0)
    data[data.index(module) + len(module) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(TamperedArchiveError):
        replace_tunings(path, TUNINGS)
    assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]
