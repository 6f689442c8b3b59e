"""Replacing the weights of a loaded model, from arrays of every kind and from files."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import aotpack
from aotpack.errors import ExecutionError, InputError, WeightsError, WeightsFileError, WeightsNotFoundError
from aotpack.spec import DType

Archive = Callable[[str], Path]
X = np.arange(1, 5, dtype=np.float32).reshape(1, 4)


def weights(seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    bias = generator.standard_normal(4).astype(np.float32)
    return {
        "weight": generator.standard_normal(4).astype(np.float32),
        "bias": bias,
        "tied": bias,
        "count": np.array([1000.0 * seed], np.float32),
        "unused": np.zeros(2, ml_dtypes.bfloat16),
    }


def expected(given: dict[str, Any]) -> Any:
    return X * (np.float32(10) * np.asarray(given["weight"])) + np.asarray(given["bias"])


ORIGINAL = {"weight": np.arange(1, 5, dtype=np.float32), "bias": np.full(4, 0.5, np.float32)}


@pytest.fixture
def model(archive: Archive) -> aotpack.Model:
    return aotpack.load(archive("updatable"), verify="full", num_threads=1)


def test_what_an_update_brings(model: aotpack.Model, archive: Archive) -> None:
    assert list(model.weights) == ["weight", "bias", "tied", "count", "unused"]
    assert str(model.weights["unused"].dtype) == "bfloat16"
    assert model.weights["weight"].shape == (4,)
    assert aotpack.load(archive("affine")).weights == {}


def test_update_and_reset(model: aotpack.Model) -> None:
    np.testing.assert_array_equal(model(X)[0], expected(ORIGINAL))
    for generation in range(1, 4):
        new = weights(generation)
        model.update_weights(new, num_threads=2)
        assert model.weight_generation == generation
        np.testing.assert_array_equal(model(X)[0], expected(new))
    model.reset_weights()
    assert model.weight_generation == 4
    np.testing.assert_array_equal(model(X)[0], expected(ORIGINAL))


def test_arrays_are_copied(model: aotpack.Model) -> None:
    new = weights(1)
    result = expected(new)
    model.update_weights(new)
    for array in new.values():
        array[...] = 0
    del new
    np.testing.assert_array_equal(model(X)[0], result)


def test_any_kind_of_array(model: aotpack.Model) -> None:
    new = weights(2)
    donor = aotpack.load(Path(model.path))
    state = donor.context().state()  # our own tensors
    mixed = {
        "weight": new["weight"][::-1].copy()[::-1],
        "bias": memoryview(new["bias"]),
        "count": state["count"],
        "unused": np.zeros(2, np.uint16),  # numpy's name for bfloat16
    }
    model.update_weights(mixed)
    np.testing.assert_array_equal(model(X)[0], expected(new))


def test_torch_state_dict(model: aotpack.Model) -> None:
    torch = pytest.importorskip("torch")
    new = weights(3)
    state = {name: torch.from_numpy(np.asarray(new[name])) for name in ("weight", "bias", "count")}
    state["tied"] = torch.nn.Parameter(state["bias"])  # the same memory, and it requires grad
    state["unused"] = torch.zeros(2, dtype=torch.bfloat16)
    model.update_weights(state)
    np.testing.assert_array_equal(model(X)[0], expected(new))


# ---- files ----------------------------------------------------------------------------------------------------------


def test_safetensors(model: aotpack.Model, tmp_path: Path) -> None:
    new = weights(4)
    path = tmp_path / "new.safetensors"
    save_file(new, path)
    for source in (path, str(path), [path]):
        model.reset_weights()
        model.update_weights(source)
        np.testing.assert_array_equal(model(X)[0], expected(new))
    path.write_bytes(b"")  # it was copied
    np.testing.assert_array_equal(model(X)[0], expected(new))


def test_shards(model: aotpack.Model, tmp_path: Path) -> None:
    new = weights(5)
    parts = {"a.safetensors": ["weight", "unused"], "b.safetensors": ["bias", "count"]}
    for file, names in parts.items():
        save_file({name: new[name] for name in names}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: file for file, names in parts.items() for name in names}}))
    for source in (index, [tmp_path / file for file in parts]):
        model.reset_weights()
        model.update_weights(source)
        np.testing.assert_array_equal(model(X)[0], expected(new))


def test_files_that_do_not_fit(model: aotpack.Model, tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    for changed, text in [
        ({"weight": np.zeros(4, np.float64)}, "'weight': expected float32 [4], got float64 [4]"),
        ({"unused": np.zeros(2, np.float16)}, "'unused': expected bfloat16 [2], got float16 [2]"),
        ({"more": np.zeros(1, np.int8)}, "there is no 'more'"),
    ]:
        save_file({**weights(6), **changed}, path)
        with pytest.raises(WeightsError) as info:
            model.update_weights(path)
        assert text in str(info.value)
    save_file({**weights(6), "weight\0": np.zeros(4, np.float32)}, path)
    with pytest.raises(WeightsError, match="unknown tensor"):
        model.update_weights(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(WeightsFileError) as error:
        model.update_weights(path)
    assert error.value.kind == "data-truncated"
    with pytest.raises(WeightsNotFoundError):
        model.update_weights(tmp_path / "none.safetensors")
    assert model.weight_generation == 0


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_a_frozen_archive(archive: Archive) -> None:
    frozen = aotpack.load(archive("affine"))
    for attempt in (lambda: frozen.update_weights({"w": np.zeros(4, np.float32)}), frozen.reset_weights):
        with pytest.raises(WeightsError, match="is frozen") as info:
            attempt()
        assert "--updatable" in (info.value.hint or "")


def test_everything_that_is_wrong_is_told(model: aotpack.Model) -> None:
    given = weights(7)
    del given["unused"]
    given["weight"] = given["weight"].astype(np.float64)
    given["bias"] = given["bias"][:3]
    given["extra"] = np.zeros(1)
    with pytest.raises(WeightsError) as info:
        model.update_weights(given)
    assert isinstance(info.value, InputError)
    assert str(info.value) == (
        "the update is rejected: 'weight': expected float32 [4], got float64 [4]; "
        "'bias': expected float32 [4], got float32 [3]; there is no 'extra'; 'unused' is missing"
    )
    assert "Model.weights" in (info.value.hint or "")
    assert model.weight_generation == 0
    np.testing.assert_array_equal(model(X)[0], expected(ORIGINAL))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "must be a mapping from names to arrays"),
        (3, "must be a mapping from names to arrays"),
        ({1: np.zeros(1)}, "must be a string, got 1"),
        ({"weight\0": np.zeros(4, np.float32)}, r"unknown tensor 'weight\\x00'"),
        ({"\ud800": np.zeros(4, np.float32)}, r"unknown tensor '\\ud800'"),
        ({"weight": object()}, "weight 'weight' must be an array, got object"),
        ({"weight": [1.0, 2.0]}, "weight 'weight' must be an array, got list"),
        ({"weight": np.zeros(4, ">f4")}, "non-native byte order"),
        ({}, "'weight' is missing"),
    ],
)
def test_what_is_no_set_of_weights(model: aotpack.Model, wrong: Any, message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        model.update_weights(wrong)


def test_number_of_threads(model: aotpack.Model) -> None:
    with pytest.raises(ValueError, match="num_threads must be at least 1"):
        model.update_weights(weights(1), num_threads=0)


def test_a_fold_that_fails(model: aotpack.Model) -> None:
    given = weights(8)
    given["weight"][0] = 0
    with pytest.raises(ExecutionError, match="cannot be folded: entry 'fold': weight begins with 0"):
        model.update_weights(given)
    np.testing.assert_array_equal(model(X)[0], expected(ORIGINAL))


def test_tied_weights_that_differ(model: aotpack.Model) -> None:
    with pytest.raises(WeightsError, match="'bias' and 'tied' are one tensor of the model, but differ"):
        model.update_weights({**weights(9), "tied": np.zeros(4, np.float32)})


# ---- while others call ----------------------------------------------------------------------------------------------


def test_calls_on_other_threads_see_one_set_each(model: aotpack.Model) -> None:
    sets = [weights(seed) for seed in range(4)]
    results = {expected(given).tobytes() for given in [*sets, ORIGINAL]}
    done = threading.Event()
    wrong: list[Any] = []
    calls = [0] * 4

    def work(i: int) -> None:
        while not done.is_set():
            y = model(X)[0]
            calls[i] += 1
            if y.tobytes() not in results:
                wrong.append(y)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    try:
        for i in range(100):
            model.update_weights(sets[i % 4])
            assert model(X)[0].tobytes() == expected(sets[i % 4]).tobytes()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert all(calls)


def test_neither_torch_nor_numpy_is_imported(archive: Archive, tmp_path: Path) -> None:
    save_file(weights(1), tmp_path / "w.safetensors")
    code = f"""
import sys
import aotpack
model = aotpack.load({str(archive("updatable"))!r})
model.update_weights({str(tmp_path / "w.safetensors")!r})
context = model.context()
context.load_state(context.state())
context.reset()
assert list(context.state()["count"].tolist()) == [1000.0]
assert not {{"torch", "numpy", "safetensors"}} & set(sys.modules), sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_dtypes_have_their_names_in_files() -> None:
    from aotpack.archive.safetensors import _DTYPES

    assert set(_DTYPES.values()) == set(DType) - {DType.COMPLEX128}
