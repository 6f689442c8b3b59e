"""`aotpack inspect` of archives with several steps, devices and assets; of others it shows none of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from aotpack.archive import ArchiveReader, Asset, FileSource, Implementation, read_manifest, write_archive
from aotpack.cli.app import app
from tests.support.archives import tensor
from tests.support.splice import Part, splice

Archive = Callable[[str], Path]


def shown(path: Path, *options: str) -> str:
    result = CliRunner().invoke(app, ["inspect", str(path), *options], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_archive_of_one_module(archive: Archive) -> None:
    text = shown(archive("affine"))
    assert "steps of" not in text
    assert "device" not in text


def test_steps_on_devices(archive: Archive, tmp_path: Path) -> None:
    (entry,) = read_manifest(archive("affine")).entries
    path = splice(
        tmp_path / "steps.aotpack",
        [
            Part(archive("affine"), ("input 0",), ("value 0",), device=None),
            Part(archive("affine"), ("value 0",), ("output 0",), device=1),
        ],
        dims=entry.dims,
        inputs=[dataclasses.replace(entry.inputs[0], device=None)],
        outputs=[dataclasses.replace(entry.outputs[0], device=1)],
        values=[tensor("hidden", ["batch", 4], order=(1, 0))],
        devices=("first", "second"),
    )
    text = shown(path)
    lines = [line.split() for line in text.splitlines()]
    assert ["devices", "first,", "second"] in lines
    assert ["in", "x", "float32", "[batch,", "4]", "contiguous", "host"] in lines
    assert ["out", "output", "float32", "[batch,", "4]", "contiguous", "second"] in lines
    assert "steps of forward, default, x86-64-v3" in text
    steps = [line for line in lines if line[1:2] in (["host"], ["second"]) and line[0] in ("1", "2")]
    assert [(line[0], line[1], line[-2], line[-1]) for line in steps] == [
        ("1", "host", "x", "hidden"),
        ("2", "second", "hidden", "output"),
    ]
    assert ["hidden", "float32", "[batch,", "4]", "order", "[1,", "0]", "first"] in lines
    manifest = json.loads(shown(path, "--json"))
    assert manifest["devices"] == ["first", "second"]
    assert len(manifest["entries"][0]["variants"][0]["targets"][0]["steps"]) == 2
    assert len([line for line in shown(path, "--kernels").splitlines() if "kernel_0" in line]) == 2


def test_assets_and_features(archive: Archive, tmp_path: Path) -> None:
    with ArchiveReader(archive("affine")) as reader:
        manifest = reader.manifest
        sources = [FileSource.from_bytes(file.path, reader.read(file.path)) for file in manifest.files]
    (entry,) = manifest.entries
    (module,) = entry.variants[0].modules
    module = dataclasses.replace(module, assets=(Asset("gemm.cubin", module.file, 64, 2048),), features=("async",))
    variant = dataclasses.replace(entry.variants[0], implementations=(Implementation.of_module(module, 1, 1),))
    changed = dataclasses.replace(manifest, entries=(dataclasses.replace(entry, variants=(variant,)),))
    write_archive(tmp_path / "assets.aotpack", changed, sources)
    text = shown(tmp_path / "assets.aotpack")
    assert "gemm.cubin (2.0 KB)" in text
    assert "async" in text
