"""`aotpack pack`: what it prints, and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cli.test_commands import invoke, invoke_json
from tests.runtime.packing.test_pack import check, weights
from tests.support.safetensors import write_safetensors

Archive = Callable[[str], Path]


def test_it_writes_an_archive(archive: Archive, tmp_path: Path) -> None:
    file, output = write_safetensors(tmp_path / "w.safetensors", weights()), tmp_path / "out.aotpack"
    result = invoke("pack", archive("updatable"), "--weights", file, "-o", output, "--threads", 1)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "3 tensors, 1 derived from them" in result.stderr
    assert "fold" in result.stderr
    check(output, weights())
    assert invoke("verify", output).exit_code == 0


def test_it_describes_itself_in_json(archive: Archive, tmp_path: Path) -> None:
    given = weights()
    parts = [write_safetensors(tmp_path / f"{name}.safetensors", {name: array}) for name, array in given.items()]
    options = [option for part in parts for option in ("--weights", part)]
    output = tmp_path / "out.aotpack"
    value = invoke_json("pack", archive("updatable"), *options, "-o", output)
    assert (value["output"], value["bytes"]) == (str(output), output.stat().st_size)
    assert (value["tensors"], value["derived"]) == (3, 1)
    assert list(value["seconds"]) == ["fold", "pack", "write"]
    check(output, given)


def test_an_archive_without_weights(archive: Archive, tmp_path: Path) -> None:
    code, output = archive("code_only"), tmp_path / "out.aotpack"
    result = invoke("inspect", code, "--weights")
    assert "52 bytes for 4 constants; `aotpack pack` adds them" in result.stdout
    assert result.stdout.count("missing") == 5
    found = invoke_json("inspect", code)
    assert found["missing_weights"] == {"constants": ["weight", "bias", "packed", "count"], "bytes": 52}
    verified = invoke_json("verify", code)
    assert verified["ok"]
    assert "aotpack pack" in verified["skipped"]
    for command in (["run", code, "--random"], ["verify", code, "--device", "cpu"]):
        error = invoke_json(*command, code=1)["error"]
        assert error["type"] == "MissingWeightsError"
        assert f"aotpack pack {code} --weights" in error["message"]
    result = invoke("pack", code, "--weights", write_safetensors(tmp_path / "w.safetensors", weights()), "-o", output)
    assert result.exit_code == 0, result.output
    check(output, weights())
    assert invoke_json("inspect", output)["missing_weights"] is None


def test_errors(archive: Archive, tmp_path: Path) -> None:
    given = weights()
    del given["weight"]
    file, output = write_safetensors(tmp_path / "w.safetensors", given), tmp_path / "out.aotpack"
    error = invoke_json("pack", archive("updatable"), "--weights", file, "-o", output, code=1)["error"]
    assert error["type"] == "WeightsError"
    assert error["message"] == "the weights do not match the archive:\n  'weight' is missing"
    assert "aotpack inspect" in error["hint"]
    error = invoke_json("pack", archive("affine"), "--weights", file, "-o", output, code=1)["error"]
    assert "--updatable" in error["hint"]
    assert invoke("pack", archive("updatable"), "-o", output).exit_code == 2
    assert not output.exists()
