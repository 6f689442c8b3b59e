"""`aotpack export-weights`, and updates from a context."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aotpack
from aotpack.errors import WeightsError
from tests.cli.test_commands import invoke, invoke_json
from tests.runtime.packing.test_pack import check, weights
from tests.support.safetensors import write_safetensors

Archive = Callable[[str], Path]
X = np.zeros((1, 4), np.float32)


def test_what_was_trained_is_packed(archive: Archive, tmp_path: Path) -> None:
    given = weights()
    moments = {f"exp_avg.{name}": array for name, array in given.items()}
    state = write_safetensors(tmp_path / "state.safetensors", given | moments)
    file, output = tmp_path / "weights.safetensors", tmp_path / "trained.aotpack"
    result = invoke("export-weights", archive("updatable"), state, "-o", file)
    assert result.exit_code == 0, result.output
    assert f"{len(given) + 1} trained" in result.stderr  # with the other name of a tied weight
    assert f"{len(moments)} other tensors of the state ignored" in result.stderr
    assert invoke("pack", archive("code_only"), "--weights", file, "-o", output).exit_code == 0
    check(output, given)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([state.name, file.name, output.name])


def test_a_state_of_a_context(archive: Archive, tmp_path: Path) -> None:
    context = aotpack.load(archive("updatable")).context()
    for _ in range(3):
        context(X)
    context.save_state(tmp_path / "state")
    value = invoke_json("export-weights", archive("updatable"), tmp_path / "state", "-o", tmp_path / "weights")
    assert (value["trained"], value["kept"]) == (["count"], ["weight", "bias", "tied"])
    assert (value["unused"], value["ignored"]) == (["unused"], [])
    model = aotpack.load(archive("updatable"))
    model.update_weights(tmp_path / "weights")
    assert model.context()(X)[1].tolist() == [4]


def test_a_model_is_updated_from_a_context(archive: Archive) -> None:
    model, trained = aotpack.load(archive("updatable")), aotpack.load(archive("updatable")).context()
    trained(X)
    trained(X)
    model.update_weights(trained)
    assert model.context()(X)[1].tolist() == [3]
    with pytest.raises(WeightsError, match="no tensor of the context's state"):
        model.update_weights(aotpack.load(archive("counter")).context())
    with pytest.raises(WeightsError, match="frozen"):
        aotpack.load(archive("counter")).update_weights(trained)
    with pytest.raises(WeightsError, match="or a context; got a Model"):
        model.update_weights(model)  # type: ignore[arg-type]


def test_errors(archive: Archive, tmp_path: Path) -> None:
    output = tmp_path / "weights"
    state = write_safetensors(tmp_path / "state", {"weight": np.zeros(3, np.float32), "x": np.zeros(1, np.float32)})
    error = invoke_json("export-weights", archive("updatable"), state, "-o", output, code=1)["error"]
    assert "'weight': expected float32 [4], got float32 [3]" in error["message"]
    other = write_safetensors(tmp_path / "other", {"x": np.zeros(1, np.float32)})
    error = invoke_json("export-weights", archive("updatable"), other, "-o", output, code=1)["error"]
    assert "none of its tensors is a weight of the archive" in error["message"]
    error = invoke_json("export-weights", archive("affine"), state, "-o", output, code=1)["error"]
    assert "frozen" in error["message"]
    assert not output.exists()
