"""Archives of every readable format, as earlier versions wrote them (tests/data), still give eager's answers."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import aotpack
from aotpack.archive import ArchiveReader, FileSource, encode_manifest, read_manifest, write_archive
from aotpack.archive.manifest import FORMAT_VERSION, READABLE_VERSIONS
from aotpack.cli.app import app
from aotpack.errors import MissingWeightsError
from aotpack.runtime import host_target
from aotpack.targets import Target
from tests.support.c_api import CError, CModel
from tests.support.frozen import DATA, Frozen, InC, InPython, Interface, names, unpack
from tests.support.once import made_once

ROOT = Path(__file__).resolve().parents[2]
NAMES = names()


def _obstacle() -> str:
    """Why this host cannot run the modules of the frozen archives; empty where it can."""
    if not Target("x86-64-v3").runs_on(Target(host_target())):
        return f"the frozen archives have modules for x86-64-v3, which this host ({host_target()}) cannot run"
    host = " ".join(platform.libc_ver())
    newest = max((Frozen(name).about["libc"] for name in NAMES), key=_version, default="")
    if _version(host) < _version(newest):
        return f"the frozen archives need {newest}, this host has {host}"
    return ""


def _version(libc: str) -> tuple[int, ...]:
    name, _, version = libc.partition(" ")
    return tuple(map(int, version.split("."))) if name == "glibc" else ()


OBSTACLE = _obstacle()
runs_here = pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the source distribution comes without tests/data")

Archive = Callable[[str], Path]


@pytest.fixture(scope="session")
def frozen_archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The path of a frozen archive by its name. Not to be written to."""

    def make(folder: Path) -> None:
        for version in {name.partition("/")[0] for name in NAMES}:
            (folder / version).mkdir()
            unpack(version, folder / version)

    folder = made_once(tmp_path_factory, "frozen", make)
    return lambda name: folder / f"{name}.aotpack"


def test_every_format_that_can_be_read_has_a_set() -> None:
    """After a new format version: `python -m tests.data.freeze`, see tests/data/README.md."""
    assert {name.partition("/")[0] for name in NAMES} == {f"format{version}" for version in READABLE_VERSIONS}
    assert max(READABLE_VERSIONS) == FORMAT_VERSION


@runs_here
@pytest.mark.parametrize("interface", [InPython, InC])
@pytest.mark.parametrize("name", NAMES)
def test_recorded_calls(name: str, interface: Callable[[Path], Interface], frozen_archive: Archive) -> None:
    frozen = Frozen(name)
    assert frozen.repeat(interface(frozen.ready(frozen_archive(name)))) >= 3


@pytest.mark.parametrize("name", [name for name in NAMES if Frozen(name).is_code_only])
def test_archives_without_weights_do_not_load(name: str, frozen_archive: Archive) -> None:
    path = frozen_archive(name)
    with pytest.raises(MissingWeightsError, match=r"`aotpack pack .*code\.aotpack --weights"):
        aotpack.load(path)
    with pytest.raises(CError, match="aotpack pack") as caught:
        CModel(path)
    assert caught.value.code == "MISSING_WEIGHTS"


@runs_here
def test_recorded_calls_in_a_process_without_torch(frozen_archive: Archive) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.support.frozen", *(str(frozen_archive(name)) for name in NAMES)],
        cwd=ROOT,
        env=os.environ | {"OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_has_recorded_calls(name: str, frozen_archive: Archive) -> None:
    with ArchiveReader(frozen_archive(name)) as reader:
        manifest = reader.manifest
    fold = manifest.weights and manifest.weights.fold
    assert {entry.name for entry in manifest.entries} - {fold.entry if fold else None} == Frozen(name).entries()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_read_and_written_again(name: str, frozen_archive: Archive, tmp_path: Path) -> None:
    path = frozen_archive(name)
    with ArchiveReader(path) as reader:
        assert reader.verify() == path.stat().st_size
        manifest = reader.manifest
        assert f"format{manifest.format_version}" == name.partition("/")[0]
        assert manifest.format_version == Frozen(name).about["format_version"]
        assert encode_manifest(manifest) == reader.read("manifest.json")
        sources = [FileSource.from_bytes(file.path, reader.read(file.path)) for file in manifest.files]
    write_archive(tmp_path / "same.aotpack", manifest, sources)
    assert (tmp_path / "same.aotpack").read_bytes() == path.read_bytes()
    write_archive(tmp_path / "now.aotpack", dataclasses.replace(manifest, format_version=FORMAT_VERSION), sources)
    with ArchiveReader(tmp_path / "now.aotpack") as reader:
        reader.verify()
        assert dataclasses.replace(reader.manifest, format_version=manifest.format_version) == manifest
    if not OBSTACLE and not Frozen(name).is_code_only:
        aotpack.load(tmp_path / "now.aotpack", verify="full")


@pytest.mark.parametrize("name", NAMES)
def test_commands(name: str, frozen_archive: Archive) -> None:
    path, about = frozen_archive(name), Frozen(name).about
    for options in ([], ["--json"]):
        result = CliRunner().invoke(app, ["inspect", str(path), *options])
        assert result.exit_code == 0, result.output
        assert Path(name).name in result.stdout
    assert json.loads(result.stdout)["format_version"] == about["format_version"]
    result = CliRunner().invoke(app, ["verify", str(path), "--json"])
    assert result.exit_code == 0, result.output
    verified = json.loads(result.stdout)
    assert verified["ok"]
    # `aotpack pack` leaves out the example calls.
    examples = any(entry.goldens for entry in read_manifest(path).entries)
    assert bool(verified["outputs"]) == (examples and verified["skipped"] is None)


def test_the_archives_are_those_that_were_recorded(frozen_archive: Archive) -> None:
    """Nothing lies in a set that no test runs, and nothing is missing."""
    for version in sorted(path.name for path in DATA.glob("format*")):
        archives = {path.stem for path in frozen_archive(f"{version}/any").parent.glob("*.aotpack")}
        recorded = {path.stem for path in (DATA / version).glob("*.json")}
        assert archives == recorded == {path.stem for path in (DATA / version).glob("*.npz")}
