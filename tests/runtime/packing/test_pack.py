"""Packing weights into archives: what comes out runs, verifies and is reproducible; what does not fit is an error."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.errors import BuildError, ExecutionError, TamperedArchiveError, WeightsError, WeightsNotFoundError
from aotpack.runtime.packing import pack_weights
from tests.support.safetensors import write_safetensors
from tests.support.torchless import ROOT

Archive = Callable[[str], Path]
Arrays = dict[str, np.ndarray[Any, Any]]

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def weights(factor: float = 3) -> Arrays:
    """Of the archive "updatable"."""
    return {
        "weight": np.array([1, 2, 3, 4], np.float32) * np.float32(factor),
        "bias": np.array([5, 6, 7, 8], np.float32),
        "count": np.array([41], np.float32),
        "unused": np.zeros(2, np.uint16),
    }


def check(path: Path, given: Arrays) -> None:
    context = aotpack.load(path, verify="full").context()
    for calls in (1, 2):
        y, count = context(X)
        np.testing.assert_array_equal(y, X * 10 * given["weight"] + given["bias"])
        assert count == given["count"] + calls


def test_the_archive_has_the_weights(archive: Archive, tmp_path: Path) -> None:
    given = weights()
    phases: list[tuple[str, bool]] = []
    report = pack_weights(
        archive("updatable"),
        write_safetensors(tmp_path / "w.safetensors", given),
        tmp_path / "out.aotpack",
        progress=lambda phase, seconds, _: phases.append((phase, seconds is None)),
    )
    check(tmp_path / "out.aotpack", given)
    assert (report.path, report.tensors, report.derived) == (tmp_path / "out.aotpack", 3, 1)
    assert report.size == (tmp_path / "out.aotpack").stat().st_size
    assert phases == [(phase, begins) for phase in ("fold", "pack", "write") for begins in (True, False)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.aotpack", "w.safetensors"]
    with ArchiveReader(tmp_path / "out.aotpack") as reader:
        reader.verify()
        assert reader.manifest.report is not None
        assert reader.manifest.files[reader.manifest.report].path == "reports/passes.json"
    # It can be updated and packed like any other.
    model = aotpack.load(tmp_path / "out.aotpack")
    model.update_weights(weights(2))
    np.testing.assert_array_equal(model(X)[0], X * 10 * weights(2)["weight"] + given["bias"])
    model.reset_weights()
    np.testing.assert_array_equal(model(X)[0], X * 10 * given["weight"] + given["bias"])


def test_the_same_weights_make_the_same_bytes(archive: Archive, tmp_path: Path) -> None:
    file = write_safetensors(tmp_path / "w.safetensors", weights())
    others = write_safetensors(tmp_path / "v.safetensors", weights(7))
    one, two, three = (tmp_path / f"{i}.aotpack" for i in range(3))
    pack_weights(archive("updatable"), file, one)
    pack_weights(archive("updatable"), others, two)
    pack_weights(two, file, three, num_threads=1)
    assert one.read_bytes() == three.read_bytes()
    assert one.read_bytes() != two.read_bytes()
    # In its own place.
    pack_weights(two, file, two)
    assert one.read_bytes() == two.read_bytes()


def test_an_archive_without_weights_gets_them(archive: Archive, tmp_path: Path) -> None:
    file = write_safetensors(tmp_path / "w.safetensors", weights())
    report = pack_weights(archive("code_only"), file, tmp_path / "out.aotpack")
    assert (report.tensors, report.derived) == (3, 1)
    check(tmp_path / "out.aotpack", weights())
    # In its own place, and as if there had been other weights.
    pack_weights(archive("updatable"), file, tmp_path / "same.aotpack")
    shutil.copy(archive("code_only"), tmp_path / "code.aotpack")
    pack_weights(tmp_path / "code.aotpack", file, tmp_path / "code.aotpack")
    for name in ("same", "code"):
        assert (tmp_path / f"{name}.aotpack").read_bytes() == (tmp_path / "out.aotpack").read_bytes()


def test_several_files_and_tied_weights(archive: Archive, tmp_path: Path) -> None:
    given = weights()
    given["tied"] = given.pop("bias")
    names = list(given)
    parts = [
        write_safetensors(tmp_path / f"{i}.safetensors", {name: given[name] for name in names[i::2]}) for i in range(2)
    ]
    pack_weights(archive("updatable"), parts, tmp_path / "out.aotpack")
    check(tmp_path / "out.aotpack", weights())


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        ({"weight": None, "count": None}, ["'weight' is missing", "'count' is missing"]),
        ({"bias": None}, ["'bias' is missing", "'tied' is missing"]),
        ({"unused": None}, ["'unused' is missing"]),
        ({"more": np.zeros(1, np.float32)}, ["there is no 'more'"]),
        (
            {"weight": np.zeros(4), "bias": np.zeros((4, 1), np.float32)},
            ["'weight': expected float32 [4], got float64 [4]", "'bias': expected float32 [4], got float32 [4, 1]"],
        ),
        ({"tied": np.ones(4, np.float32)}, ["'bias' and 'tied' are one tensor of the model, but differ"]),
    ],
)
def test_everything_that_does_not_match_is_listed(
    archive: Archive, tmp_path: Path, change: dict[str, Any], problems: list[str]
) -> None:
    given = {name: array for name, array in {**weights(), **change}.items() if array is not None}
    output = tmp_path / "out.aotpack"
    output.write_text("as it was")
    with pytest.raises(WeightsError) as caught:
        pack_weights(archive("updatable"), write_safetensors(tmp_path / "w.safetensors", given), output)
    assert str(caught.value).splitlines() == [
        "the weights do not match the archive:",
        *(f"  {problem}" for problem in problems),
    ]
    assert output.read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.aotpack", "w.safetensors"]


def test_what_fails_leaves_nothing(archive: Archive, tmp_path: Path) -> None:
    file, output = write_safetensors(tmp_path / "w.safetensors", weights()), tmp_path / "out.aotpack"
    with pytest.raises(WeightsError, match=r"the archive is frozen \(it was built without --updatable\)"):
        pack_weights(archive("affine"), file, output)
    with pytest.raises(WeightsNotFoundError, match=r"no such file: .*none\.safetensors"):
        pack_weights(archive("updatable"), tmp_path / "none.safetensors", output)
    with pytest.raises(BuildError, match="does not exist"):
        pack_weights(archive("updatable"), file, tmp_path / "folder" / "out.aotpack")
    with pytest.raises(ExecutionError, match="weight begins with 0"):
        pack_weights(archive("updatable"), write_safetensors(tmp_path / "0.safetensors", weights(0)), output)
    data = bytearray(archive("updatable").read_bytes())
    with ArchiveReader(archive("updatable")) as reader:
        forward = reader.manifest.entries[0].variants[0].modules[0]
        start = data.index(reader.read(forward.file))
    data[start + 100] ^= 1
    (tmp_path / "damaged.aotpack").write_bytes(data)
    with pytest.raises(TamperedArchiveError, match="tampered archive"):
        pack_weights(tmp_path / "damaged.aotpack", file, output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.safetensors", "damaged.aotpack", "w.safetensors"]


def test_no_torch_is_imported(archive: Archive, tmp_path: Path) -> None:
    file = write_safetensors(tmp_path / "w.safetensors", weights())
    code = f"""
import sys
sys.modules["torch"] = None
from aotpack.cli.app import app
try:
    app(["pack", {str(archive("updatable"))!r}, "--weights", {str(file)!r}, "-o", {str(tmp_path / "out.aotpack")!r}])
except SystemExit as ended:
    assert not ended.code, ended.code
assert not any(name.startswith("torch.") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    check(tmp_path / "out.aotpack", weights())
