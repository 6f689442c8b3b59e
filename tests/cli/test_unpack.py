"""`aotpack unpack`, and `aotpack pack` of a folder: what they print, and how they fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_commands import invoke, invoke_json
from tests.support.sources import with_sources

Archive = Callable[[str], Path]


@pytest.fixture
def source(archive: Archive, tmp_path: Path) -> Path:
    return with_sources(archive("affine"), tmp_path / "model.aotpack")


def test_there_and_back(source: Path, tmp_path: Path) -> None:
    folder, output = tmp_path / "folder", tmp_path / "out.aotpack"
    result = invoke("unpack", source, "-o", folder)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "sources of 1 module" in result.stderr
    packed = invoke("pack", folder, "-o", output)
    assert packed.exit_code == 0, packed.output
    assert "unchanged" in packed.stderr
    assert output.read_bytes() == source.read_bytes()
    assert invoke("verify", output).exit_code == 0


def test_json(source: Path, tmp_path: Path) -> None:
    folder, output = tmp_path / "folder", tmp_path / "out.aotpack"
    value = invoke_json("unpack", source, "-o", folder)
    assert value["output"] == str(folder)
    (module,) = value["modules"]
    assert value["files"] > value["sources"] == 4
    (folder / module).write_bytes((folder / module).read_bytes() + b"\0")
    packed = invoke_json("pack", folder, "-o", output)
    assert (packed["output"], packed["bytes"]) == (str(output), output.stat().st_size)
    assert (packed["changed_modules"], packed["changed_constants"], packed["goldens"]) == ([module], [], False)
    assert "without the example calls" in invoke("pack", folder, "-o", output).stderr
    assert invoke_json("pack", folder, "-o", output, "--goldens")["goldens"]


def test_inspect_shows_sources(archive: Archive, source: Path) -> None:
    assert "`aotpack unpack` writes them as a folder" in invoke("inspect", source).stdout
    assert invoke_json("inspect", source)["source_bytes"] > 0
    assert invoke_json("inspect", archive("affine"))["source_bytes"] == 0


def test_errors(archive: Archive, source: Path, tmp_path: Path) -> None:
    error = invoke_json("unpack", archive("affine"), "-o", tmp_path / "folder", code=1)["error"]
    assert error["type"] == "MissingSourcesError"
    assert "aotpack build MODEL --sources" in error["hint"]
    assert not (tmp_path / "folder").exists()
    assert invoke("unpack", source, "-o", tmp_path / "folder").exit_code == 0
    error = invoke_json("unpack", source, "-o", tmp_path / "folder", code=1)["error"]
    assert "is not empty" in error["message"]
    assert invoke("pack", tmp_path / "folder", "--weights", "x", "-o", tmp_path / "o.aotpack").exit_code == 2
    assert invoke("pack", source, "--goldens", "--weights", "x", "-o", tmp_path / "o.aotpack").exit_code == 2
    (tmp_path / "folder" / "stray").touch()
    error = invoke_json("pack", tmp_path / "folder", "-o", tmp_path / "o.aotpack", code=1)["error"]
    assert error["type"] == "FolderError"
    assert "stray belongs to nothing" in error["message"]
    error = invoke_json("pack", archive("affine").parent, "-o", tmp_path / "o.aotpack", code=1)["error"]
    assert "not the folder of an unpacked archive" in error["message"]
