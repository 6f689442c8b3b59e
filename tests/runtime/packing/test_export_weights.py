"""Trained values become weights of an archive for inference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotpack
from aotpack.archive.safetensors import open_safetensors
from aotpack.errors import ArchiveNotFoundError, BuildError, WeightsError, WeightsFileError, WeightsNotFoundError
from aotpack.runtime.packing import export_weights, pack_weights
from tests.runtime.packing.test_pack import X, check
from tests.support.safetensors import write_safetensors

Archive = Callable[[str], Path]

TRAINED = {
    "weight": np.array([2, 0, 1, 3], np.float32),
    "optimizer.state.weight.step": np.array(7, np.float32),
}
# What the archive has: y = 10 * weight * x + bias, and a count.
OWN = {"bias": np.full(4, 0.5, np.float32), "count": np.zeros(1, np.float32)}


def values(path: Path) -> dict[str, Any]:
    with open_safetensors(path) as files:
        return {name: (files.spec(name)[0].value, bytes(files.bytes(name))) for name in files.names}


def test_a_state_and_an_archive_become_weights(archive: Archive, tmp_path: Path) -> None:
    state = write_safetensors(tmp_path / "state.safetensors", TRAINED)
    report = export_weights(archive("updatable"), state, tmp_path / "weights.safetensors")
    assert (report.trained, report.kept, report.unused) == (("weight",), ("bias", "tied", "count"), ("unused",))
    assert report.ignored == ("optimizer.state.weight.step",)
    assert report.size == report.path.stat().st_size
    assert values(report.path) == {
        "weight": ("float32", TRAINED["weight"].tobytes()),
        "bias": ("float32", OWN["bias"].tobytes()),
        "tied": ("float32", OWN["bias"].tobytes()),
        "count": ("float32", OWN["count"].tobytes()),
        "unused": ("bfloat16", bytes(4)),
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.safetensors", "weights.safetensors"]
    pack_weights(archive("updatable"), report.path, tmp_path / "trained.aotpack")
    check(tmp_path / "trained.aotpack", OWN | {"weight": TRAINED["weight"] + np.float32(0)})
    model = aotpack.load(archive("updatable"))
    model.update_weights(report.path)
    np.testing.assert_array_equal(model(X)[0], X * 10 * TRAINED["weight"] + OWN["bias"])
    torch = pytest.importorskip("safetensors.torch")
    assert torch.load_file(report.path)["weight"].tolist() == [2, 0, 1, 3]


def test_tied_weights_have_the_trained_value(archive: Archive, tmp_path: Path) -> None:
    bias = np.arange(4, dtype=np.float32)
    state = write_safetensors(tmp_path / "state.safetensors", {"tied": bias})
    # Over its own source.
    report = export_weights(archive("updatable"), state, state)
    found = values(state)
    assert found["bias"] == found["tied"] == ("float32", bias.tobytes())
    assert report.trained == ("bias", "tied")


def test_a_code_only_archive_needs_all_weights(archive: Archive, tmp_path: Path) -> None:
    complete = TRAINED | {"tied": OWN["bias"], "count": OWN["count"]}
    state = write_safetensors(tmp_path / "state.safetensors", complete)
    report = export_weights(archive("code_only"), state, tmp_path / "weights.safetensors")
    assert (report.kept, report.unused) == ((), ("unused",))
    state = write_safetensors(tmp_path / "state.safetensors", TRAINED)
    with pytest.raises(WeightsError) as info:
        export_weights(archive("code_only"), state, tmp_path / "none.safetensors")
    assert str(info.value).splitlines()[1:] == [
        f"  '{name}' is missing, and the archive is code-only" for name in ("bias", "tied", "count")
    ]
    assert not (tmp_path / "none.safetensors").exists()


def test_what_does_not_fit(archive: Archive, tmp_path: Path) -> None:
    wrong = {"weight": np.zeros((2, 2), np.float32), "bias": np.zeros(4), "tied": np.zeros(4, np.float32)}
    state = write_safetensors(tmp_path / "state.safetensors", wrong)
    output = tmp_path / "weights.safetensors"
    with pytest.raises(WeightsError) as info:
        export_weights(archive("updatable"), state, output)
    assert str(info.value).splitlines()[1:] == [
        "  'weight': expected float32 [4], got float32 [2, 2]",
        "  'bias': expected float32 [4], got float64 [4]",
    ]
    differ = {"bias": np.ones(4, np.float32), "tied": np.zeros(4, np.float32)}
    with pytest.raises(WeightsError, match="'bias' and 'tied' are one tensor of the model, but differ"):
        export_weights(archive("updatable"), write_safetensors(state, differ), output)
    write_safetensors(state, {"other": np.ones(4, np.float32)})
    with pytest.raises(WeightsError, match="none of its tensors is a weight of the archive"):
        export_weights(archive("updatable"), state, output)
    with pytest.raises(WeightsError, match="is frozen"):
        export_weights(archive("affine"), state, output)
    with pytest.raises(ArchiveNotFoundError):
        export_weights(tmp_path / "none.aotpack", state, output)
    with pytest.raises(WeightsNotFoundError):
        export_weights(archive("updatable"), tmp_path / "none.safetensors", output)
    with pytest.raises(BuildError, match="does not exist"):
        export_weights(archive("updatable"), state, tmp_path / "none" / "weights.safetensors")
    state.write_bytes(state.read_bytes()[:-1])
    with pytest.raises(WeightsFileError):
        export_weights(archive("updatable"), state, output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.safetensors"]
