"""Unpacking archives as folders, and packing these: nothing changes by itself, changes arrive, problems are listed."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotpack
from aotpack.archive import ArchiveReader, Constant, FileSource, encode_manifest, write_archive
from aotpack.archive.safetensors import SafetensorsFile
from aotpack.archive.safetensors_writer import write_safetensors
from aotpack.archive.sources import SOURCES_PATH, decode_sources
from aotpack.errors import (
    BuildError,
    FolderError,
    MalformedArchiveError,
    MissingSourcesError,
    TamperedArchiveError,
    WeightsFileError,
    WeightsNotFoundError,
)
from aotpack.runtime.packing import pack_folder, unpack
from aotpack.runtime.packing.constant_bytes import from_rows, stored_as, to_rows
from aotpack.runtime.packing.folder_layout import readable_json
from aotpack.spec import DType
from tests.support.cuda_archives import affine_archive, fake_cubin
from tests.support.sources import with_sources
from tests.support.torchless import ROOT

Archive = Callable[[str], Path]
SO = "modules/x86-64-v3/affine.so"
X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def source(archive: Archive, tmp_path: Path) -> Path:
    return with_sources(archive("affine"), tmp_path / "model.aotpack")


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    unpack(source, tmp_path / "folder")
    return tmp_path / "folder"


def module_of(folder: Path) -> str:
    (path,) = folder.glob("modules/*/*.so")
    return path.relative_to(folder).as_posix()


def change(path: Path, text: str, seconds: float = 60) -> None:
    """Writes a file so that it is newer than what was unpacked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    later = path.stat().st_mtime + seconds
    os.utime(path, (later, later))


def rewrite_weights(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "weights" / "weights.safetensors"
    file = SafetensorsFile(path)
    tensors = {name: (*file.spec(name), bytes(file.bytes(name))) for name in file.names}
    file.close()
    edit(tensors)
    path.unlink()
    write_safetensors(path, {name: value[:2] for name, value in tensors.items()}, lambda name: tensors[name][2])


@pytest.mark.parametrize("name", ["affine", "updatable", "code_only", "variants", "counter", "bfloat16"])
def test_an_unchanged_folder_is_the_archive(archive: Archive, name: str, tmp_path: Path) -> None:
    source = with_sources(archive(name), tmp_path / "a.aotpack")
    report = unpack(source, tmp_path / "folder")
    assert report.files == sum(path.is_file() for path in (tmp_path / "folder").rglob("*"))
    packed = pack_folder(tmp_path / "folder", tmp_path / "b.aotpack")
    assert (packed.modules, packed.constants, packed.dropped) == ((), (), False)
    assert (tmp_path / "b.aotpack").read_bytes() == source.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.aotpack", "b.aotpack", "folder"]


def test_the_folder(folder: Path, source: Path) -> None:
    readme = (folder / "README.md").read_text()
    with ArchiveReader(source) as reader:
        manifest = reader.manifest
        assert json.loads((folder / "manifest.json").read_text()) == json.loads(encode_manifest(manifest))
        for index, constant in enumerate(manifest.constants):
            file = SafetensorsFile(folder / "weights" / "weights.safetensors")
            assert file.spec(constant.name) == (constant.dtype, constant.shape)
            assert bytes(file.bytes(constant.name)) == reader.constant(index)
            file.close()
    assert str(manifest.entries[0].signature) in readme
    for path in ("CMakeLists.txt", "modules/", "weights/weights.safetensors", "manifest.json"):
        assert f"`{path}`" in readme
    assert "cmake -B build" in readme


def test_a_module_is_replaced(folder: Path, archive: Archive, tmp_path: Path) -> None:
    """A module that was built again: the archive runs it, and has no answers of the old one."""
    module = folder / module_of(folder)
    code = bytearray(module.read_bytes())
    module.write_bytes(bytes(code) + b"\0")
    report = pack_folder(folder, tmp_path / "out.aotpack")
    assert report.modules == (module_of(folder),)
    assert report.dropped
    with ArchiveReader(tmp_path / "out.aotpack") as reader:
        assert not reader.manifest.entries[0].goldens
        assert not any(file.path.startswith("goldens/") for file in reader.manifest.files)
        reader.verify()
    want = aotpack.load(archive("affine"))(X)
    np.testing.assert_array_equal(aotpack.load(tmp_path / "out.aotpack", verify="full")(X), want)
    kept = pack_folder(folder, tmp_path / "kept.aotpack", goldens=True)
    assert kept.goldens
    assert not pack_folder(folder, tmp_path / "none.aotpack", goldens=False).goldens


def test_a_weight_is_changed(folder: Path, archive: Archive, tmp_path: Path) -> None:
    changed: list[str] = []

    def double(tensors: dict[str, Any]) -> None:
        name = next(name for name, (dtype, *_) in tensors.items() if dtype is DType.FLOAT32)
        dtype, shape, raw = tensors[name]
        tensors[name] = (dtype, shape, (np.frombuffer(raw, np.float32) * 2).tobytes())
        changed.append(name)

    rewrite_weights(folder, double)
    report = pack_folder(folder, tmp_path / "out.aotpack")
    assert report.constants == tuple(changed)
    assert report.dropped
    before, after = aotpack.load(archive("affine"))(X), aotpack.load(tmp_path / "out.aotpack", verify="full")(X)
    assert not np.array_equal(before, after)


def test_weights_that_do_not_match(folder: Path, tmp_path: Path) -> None:
    def edit(tensors: dict[str, Any]) -> None:
        first = next(iter(tensors))
        dtype, shape, raw = tensors.pop(first)
        tensors["more"] = (dtype, shape, raw)

    rewrite_weights(folder, edit)
    with pytest.raises(FolderError) as info:
        pack_folder(folder, tmp_path / "out.aotpack")
    assert "is missing" in str(info.value)
    assert "the manifest has no constant 'more'" in str(info.value)
    (folder / "weights" / "weights.safetensors").write_bytes(b"x")
    with pytest.raises(WeightsFileError):
        pack_folder(folder, tmp_path / "out.aotpack")
    (folder / "weights" / "weights.safetensors").unlink()
    with pytest.raises(WeightsNotFoundError):
        pack_folder(folder, tmp_path / "out.aotpack")
    assert not (tmp_path / "out.aotpack").exists()


def test_shapes_of_weights(folder: Path, tmp_path: Path) -> None:
    def reshape(tensors: dict[str, Any]) -> None:
        first = next(iter(tensors))
        dtype, shape, raw = tensors[first]
        tensors[first] = (dtype, (1, *shape), raw)

    rewrite_weights(folder, reshape)
    with pytest.raises(FolderError, match=r"expected float32 \[.*\], got float32 \[1, "):
        pack_folder(folder, tmp_path / "out.aotpack")


def test_folded_weights_follow_their_sources(archive: Archive, tmp_path: Path) -> None:
    """In an updatable archive, one of two weights that belong together cannot be changed alone."""
    unpack(with_sources(archive("updatable"), tmp_path / "a.aotpack"), tmp_path / "folder")

    def edit(tensors: dict[str, Any]) -> None:
        dtype, shape, raw = tensors["weight"]
        tensors["weight"] = (dtype, shape, bytes(len(raw)))

    rewrite_weights(tmp_path / "folder", edit)
    with pytest.raises(FolderError, match=r"'weight' was changed, but the archive is updatable.*aotpack pack"):
        pack_folder(tmp_path / "folder", tmp_path / "out.aotpack")


def test_outdated_modules(folder: Path, tmp_path: Path) -> None:
    """A source that was changed after its module was built is an error, until the module is built."""
    module = module_of(folder)
    src = f"src/{module.removeprefix('modules/').removesuffix('.so')}"
    change(folder / src / "wrapper.cpp", "int y;\n")
    with pytest.raises(FolderError, match=f"{src}/wrapper.cpp was changed, but {module} is older") as info:
        pack_folder(folder, tmp_path / "out.aotpack")
    assert info.value.hint is not None
    assert "cmake --build" in info.value.hint
    os.utime(folder / module, (4e9, 4e9))
    report = pack_folder(folder, tmp_path / "out.aotpack")
    assert report.modules == ()
    with ArchiveReader(tmp_path / "out.aotpack") as reader:
        assert decode_sources(reader.read(SOURCES_PATH))[f"{src}/wrapper.cpp"] == b"int y;\n"
        assert "source_sha256" not in reader.manifest.producer
    # A text to read changes nothing, and a shared header needs one module at least.
    os.utime(folder / module)
    change(folder / src / "wrapper.cpp", "int x;\n")
    change(folder / src / "program.txt", "other\n")
    pack_folder(folder, tmp_path / "out.aotpack")
    change(folder / "aotpack" / "tensor.h", "// other\n")
    with pytest.raises(FolderError, match=r"aotpack/tensor.h was changed, but all modules are older"):
        pack_folder(folder, tmp_path / "out.aotpack")


def test_new_sources_come_along(folder: Path, tmp_path: Path) -> None:
    change(folder / "src" / "mine.h", "// mine\n", seconds=-3600)
    pack_folder(folder, tmp_path / "out.aotpack")
    unpack(tmp_path / "out.aotpack", tmp_path / "again")
    assert (tmp_path / "again" / "src" / "mine.h").read_text() == "// mine\n"


def test_missing_and_unknown_files(folder: Path, tmp_path: Path) -> None:
    (folder / "aotpack" / "tensor.h").unlink()
    (folder / "notes.md").write_text("notes")
    (folder / ".git").mkdir()
    (folder / "build").mkdir()
    (folder / "build" / "CMakeCache.txt").touch()
    (folder / "link").symlink_to(folder / "manifest.json")
    with pytest.raises(FolderError) as info:
        pack_folder(folder, tmp_path / "out.aotpack")
    assert str(info.value).splitlines()[1:] == [
        "  link is a link, not a file",
        "  notes.md belongs to nothing: move it below src/, or out of the folder",
        "  aotpack/tensor.h is missing: restore it, or remove its line in checksums.json",
    ]
    for name in ("notes.md", "link"):
        (folder / name).unlink()
    (folder / "aotpack").mkdir(exist_ok=True)
    (folder / "aotpack" / "tensor.h").write_text("// a header\n")
    module = folder / module_of(folder)
    module.rename(module.with_suffix(".o"))
    with pytest.raises(FolderError) as info:
        pack_folder(folder, tmp_path / "out.aotpack")
    assert "is missing: build it first" in str(info.value)
    assert ".o is not in the manifest" in str(info.value)
    module.with_suffix(".o").unlink()
    module.write_bytes(b"#!/bin/sh\n")
    with pytest.raises(FolderError, match="is not a module"):
        pack_folder(folder, tmp_path / "out.aotpack")
    assert not (tmp_path / "out.aotpack").exists()


def test_manifests(folder: Path, tmp_path: Path) -> None:
    path = folder / "manifest.json"
    text = path.read_text()
    value = json.loads(text)
    path.write_text(json.dumps(value | {"name": "renamed"}))
    pack_folder(folder, tmp_path / "out.aotpack")
    with ArchiveReader(tmp_path / "out.aotpack") as reader:
        assert reader.manifest.name == "renamed"
    for wrong, message in (
        ("{", "not valid JSON"),
        (json.dumps({**value, "nmae": 1}), "manifest"),
        ("NaN", "Out of range|expected an object"),
    ):
        path.write_text(wrong)
        with pytest.raises(MalformedArchiveError, match=message):
            pack_folder(folder, tmp_path / "x.aotpack")
    path.unlink()
    with pytest.raises(FolderError, match=r"manifest.json is missing"):
        pack_folder(folder, tmp_path / "x.aotpack")
    (folder / "checksums.json").unlink()
    with pytest.raises(FolderError, match="not the folder of an unpacked archive"):
        pack_folder(folder, tmp_path / "x.aotpack")


def test_archives_that_cannot_be_unpacked(archive: Archive, source: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingSourcesError, match="no sources") as info:
        unpack(archive("affine"), tmp_path / "folder")
    assert info.value.hint is not None
    assert "--sources" in info.value.hint
    damaged = bytearray(source.read_bytes())
    with ArchiveReader(source) as reader:
        place = reader.manifest.constants[0].sha256
        at = damaged.index(reader.constant(0))
    assert place is not None
    damaged[at] ^= 1
    (tmp_path / "damaged.aotpack").write_bytes(bytes(damaged))
    with pytest.raises(TamperedArchiveError):
        unpack(tmp_path / "damaged.aotpack", tmp_path / "folder")
    with_sources(archive("affine"), tmp_path / "clash.aotpack", {"manifest.json": "x"})
    with pytest.raises(FileExistsError):
        unpack(tmp_path / "clash.aotpack", tmp_path / "folder")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".aotpack"] * 3


def test_outputs(source: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="is not empty"):
        unpack(source, folder)
    with pytest.raises(BuildError, match="does not exist"):
        unpack(source, tmp_path / "no" / "folder")
    with pytest.raises(BuildError, match="exists and is not a folder"):
        unpack(source, source)
    (tmp_path / "empty").mkdir()
    unpack(source, tmp_path / "empty")
    with pytest.raises(FolderError, match="in the folder that is packed"):
        pack_folder(folder, folder / "out.aotpack")


def test_code_for_devices(compile_c: Callable[[str], bytes], tmp_path: Path) -> None:
    """Kernels of a GPU are files of their own: one that is replaced arrives, whatever its size."""
    assets = {"affine.cubin": fake_cubin("sm_90", "affine"), "affine.ptx": b"text\0"}
    source = with_sources(affine_archive(tmp_path / "a.aotpack", compile_c, assets=assets), tmp_path / "b.aotpack")
    unpack(source, tmp_path / "folder")
    (cubin,) = tmp_path.glob("folder/modules/*/*/affine.cubin")
    assert cubin.read_bytes() == assets["affine.cubin"]
    pack_folder(tmp_path / "folder", tmp_path / "same.aotpack")
    assert (tmp_path / "same.aotpack").read_bytes() == source.read_bytes()
    cubin.write_bytes(assets["affine.cubin"] + bytes(100))
    report = pack_folder(tmp_path / "folder", tmp_path / "c.aotpack")
    assert report.modules == (cubin.parent.relative_to(tmp_path / "folder").as_posix(),)
    with ArchiveReader(tmp_path / "c.aotpack") as reader:
        (module,) = reader.manifest.entries[0].variants[0].modules
        found = {asset.name: reader.read(asset.file, asset.offset, asset.nbytes) for asset in module.assets}
    assert found == assets | {"affine.cubin": assets["affine.cubin"] + bytes(100)}
    cubin.unlink()
    with pytest.raises(FolderError, match=r"affine.cubin is missing"):
        pack_folder(tmp_path / "folder", tmp_path / "d.aotpack")


def constant(dtype: DType, shape: tuple[int, ...], stride: tuple[int, ...], nbytes: int) -> Constant:
    return Constant("c", "packed", (), dtype, shape, stride, 0, 0, nbytes, "0" * 64)


@pytest.mark.parametrize(
    ("shape", "stride", "stored"),
    [
        ((2, 3), (3, 1), (2, 3)),
        ((2, 3), (1, 2), (2, 3)),
        ((2, 3, 4), (4, 8, 1), (2, 3, 4)),
        ((1, 3), (99, 1), None),
        ((2, 3), (4, 1), None),
        ((2, 3), (0, 1), None),
        ((), (), ()),
        ((0, 3), (3, 1), (0, 3)),
        ((0, 3), (1, 7), (0, 3)),
        ((3, 1), (1, 3), (3, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16, DType.COMPLEX64, DType.COMPLEX128, DType.BOOL])
def test_layouts(dtype: DType, shape: tuple[int, ...], stride: tuple[int, ...], stored: tuple[int, ...] | None) -> None:
    """Constants in the file have the shape of the constant where its memory is dense, and are its bytes elsewhere."""
    from aotpack.archive.fields import extent

    span = extent(shape, stride)
    raw = np.random.default_rng(0).integers(0, 2, span * dtype.itemsize, np.uint8).tobytes()
    item = constant(dtype, shape, stride, len(raw))
    as_bytes = (stored is None and shape != (1, 3)) or dtype is DType.COMPLEX128
    assert stored_as(item) == ((DType.UINT8, (len(raw),)) if as_bytes else (dtype, shape))
    rows = to_rows(item, raw)
    assert bytes(from_rows(item, rows)) == raw
    if not as_bytes and span:
        view = np.lib.stride_tricks.as_strided(
            np.frombuffer(raw, f"V{dtype.itemsize}"), shape, [s * dtype.itemsize for s in stride]
        )
        assert bytes(rows) == view.tobytes()


def test_bools_are_zero_or_one() -> None:
    assert bytes(from_rows(constant(DType.BOOL, (3,), (1,), 3), b"\x00\xff\x02")) == b"\x00\x01\x01"


def test_readable_json() -> None:
    value = {"b": [1, 2, {"c": None}], "a": ["x" * 60, "y" * 60], "empty": {}}
    text = readable_json(value)
    assert json.loads(text) == value
    assert '"b": [1, 2, {"c": null}]' in text
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("\n") == 7


def test_no_torch_is_needed(source: Path, tmp_path: Path) -> None:
    code = (
        "import sys, aotpack.runtime.packing as p;"
        f"p.unpack({str(source)!r}, {str(tmp_path / 'f')!r});"
        f"p.pack_folder({str(tmp_path / 'f')!r}, {str(tmp_path / 'o.aotpack')!r});"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_archives_with_unknown_files_keep_them_out(archive: Archive, tmp_path: Path) -> None:
    """What is neither weights, code, goldens, reports nor sources has no place in a folder."""
    source = with_sources(archive("affine"), tmp_path / "a.aotpack")
    with ArchiveReader(source) as reader:
        sources = [reader.source(index) for index in range(len(reader.manifest.files))]
        sources.append(FileSource.from_bytes("other/file", b"x"))
        write_archive(tmp_path / "b.aotpack", dataclasses.replace(reader.manifest, files=()), sources)
    unpack(tmp_path / "b.aotpack", tmp_path / "folder")
    pack_folder(tmp_path / "folder", tmp_path / "c.aotpack")
    assert (tmp_path / "c.aotpack").read_bytes() == source.read_bytes()
