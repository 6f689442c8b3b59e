"""`aotpack cache`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aotpack.building.cache import BuildCache
from aotpack.building.folders import own_part
from aotpack.cli.app import app


def invoke(*args: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["cache", *args])
    assert result.exit_code == code, result.output
    return result


def invoke_json(*args: str, code: int = 0) -> Any:
    return json.loads(invoke(*args, "--json", code=code).stdout)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildCache:
    monkeypatch.setenv("AOTPACK_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("AOTPACK_CACHE_SIZE", raising=False)
    cache = BuildCache()
    for i in range(3):
        cache.get(f"{i:064x}", ".o", lambda path: path.write_bytes(bytes(2000)) and None)
    cache.get("f" * 64, ".h.gch", lambda path: path.write_bytes(bytes(5000)) and None)
    return cache


def test_info(cache: BuildCache, tmp_path: Path) -> None:
    value = invoke_json("info")
    assert value == {
        "folder": str(own_part(tmp_path)),
        "limit": 5 << 30,
        "files": 4,
        "bytes": 11000 + 4 * 65,
        "kinds": {
            "objects": {"files": 3, "bytes": 6000 + 3 * 65},
            "precompiled headers": {"files": 1, "bytes": 5065},
        },
    }
    text = invoke("info").stdout
    for expected in ("5.0 GB", "precompiled headers", str(own_part(tmp_path))):
        assert expected in text


def test_info_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTPACK_CACHE_DIR", str(tmp_path / "absent"))
    assert invoke_json("info")["files"] == 0
    assert not (tmp_path / "absent").exists()


def test_prune(cache: BuildCache) -> None:
    assert invoke_json("prune") == {"removed": {"files": 0, "bytes": 0}}
    assert invoke_json("prune", "--size", "10K")["removed"]["files"] == 1
    assert "removed 3 entries" in invoke("prune", "--size", "0").stdout
    assert invoke_json("info")["files"] == 0
    assert "such as 500M" in invoke("prune", "--size", "much", code=2).output


def test_clear(cache: BuildCache) -> None:
    assert invoke_json("clear")["removed"]["files"] == 4
    assert invoke_json("info")["bytes"] == 0
    assert "removed 0 entries" in invoke("clear").stdout


def test_a_limit_that_is_not_one(cache: BuildCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTPACK_CACHE_SIZE", "much")
    assert "AOTPACK_CACHE_SIZE" in invoke_json("info", code=1)["error"]["message"]


def test_help_teaches() -> None:
    text = invoke("--help").output
    assert "AOTPACK_CACHE_DIR" in text
    assert "AOTPACK_CACHE_SIZE" in text
    for command in ("info", "prune", "clear"):
        assert "Examples" in invoke(command, "--help").output
