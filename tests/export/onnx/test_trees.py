"""Ensembles of trees: those of scikit-learn against ONNX Runtime, an archive, and what is malformed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import aotpack
from aotpack.export import BuildOptions, build_archive, from_onnx
from aotpack.export.onnx.base.errors import OnnxError
from tests.export.onnx.one_node import Array, by_onnxruntime, imported, one_node, same

pytestmark = pytest.mark.torch
pytest.importorskip("skl2onnx")
pytest.importorskip("onnxruntime")

_RANDOM = np.random.default_rng(0)
_X: Array = _RANDOM.normal(size=(60, 8)).astype(np.float32)
_Y: Array = _X @ _RANDOM.normal(size=8)


def _converted(estimator: Any, y: Array) -> onnx.ModelProto:
    from skl2onnx import to_onnx

    estimator.fit(_X, y)
    options = {"zipmap": False} if hasattr(estimator, "predict_proba") else None
    model: onnx.ModelProto = to_onnx(estimator, _X[:1], options=options, target_opset={"": 21, "ai.onnx.ml": 3})
    return model


def test_trees_agree_with_onnxruntime() -> None:
    from sklearn import ensemble, tree

    two, three = (_Y > 0).astype(np.int64), np.digitize(_Y, [-1, 1]) + 3
    for estimator, y in (
        (ensemble.RandomForestRegressor(4, random_state=0), np.stack([_Y, _Y**2], 1)),
        (ensemble.GradientBoostingClassifier(n_estimators=4, random_state=0), two),
        (ensemble.GradientBoostingClassifier(n_estimators=4, random_state=0), three),
        (ensemble.RandomForestClassifier(4, random_state=0), two),
        (ensemble.RandomForestClassifier(4, random_state=0), three),
        (tree.DecisionTreeClassifier(random_state=0), three),
    ):
        model = _converted(estimator, y)
        inputs = {model.graph.input[0].name: _X}
        for found, wanted in zip(imported(model, inputs), by_onnxruntime(model, inputs), strict=True):
            same(found, wanted, 1e-5)


def test_archive_of_boosted_trees(tmp_path: Path, cache_dir: Path) -> None:
    from sklearn.ensemble import GradientBoostingRegressor

    model = _converted(GradientBoostingRegressor(n_estimators=4, max_depth=3, random_state=0), _Y)
    path = tmp_path / "trees.aotpack"
    build_archive(from_onnx(model), path, options=BuildOptions(cache_dir=cache_dir))
    archive = aotpack.load(path, num_threads=1)
    for rows in (0, 1, 60):
        found = archive(_X[:rows])["variable"]
        wanted = by_onnxruntime(model, {"X": _X[:rows]})[0]
        np.testing.assert_allclose(np.asarray(found), wanted, atol=1e-4)


def _attributes(**changes: Any) -> dict[str, Any]:
    """x[0] <= 0.5 ? 1 : (x[1] > 0 ? 2 : 3)."""
    return {
        "nodes_treeids": [0] * 5,
        "nodes_nodeids": [0, 1, 2, 3, 4],
        "nodes_featureids": [0, 0, 1, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.0, 0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 3, 0, 0],
        "nodes_falsenodeids": [2, 0, 4, 0, 0],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0],
        "target_treeids": [0, 0, 0],
        "target_nodeids": [1, 3, 4],
        "target_ids": [0, 0, 0],
        "target_weights": [1.0, 2.0, 3.0],
        "n_targets": 1,
        **changes,
    }


def _regressor(x: Array, **changes: Any) -> tuple[onnx.ModelProto, dict[str, Array]]:
    model = one_node("TreeEnsembleRegressor", [x], domain="ai.onnx.ml", **_attributes(**changes))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("o0", onnx.TensorProto.FLOAT, [None, 1]))
    return model, {"i0": x}


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_modes_missing_values_and_aggregates(aggregate: str) -> None:
    x = np.array([[0.5, 9], [0.6, 1], [0.6, 0], [np.nan, 1], [2, np.nan]], np.float32)
    model, inputs = _regressor(x, aggregate_function=aggregate)
    (found,) = imported(model, inputs)
    assert found.reshape(-1).tolist() == [1, 2, 3, 1, 3]
    same(found, by_onnxruntime(model, inputs)[0], 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_truenodeids": [1, 0, 0, 0, 0]}, "cycle"),
        ({"nodes_truenodeids": [7, 0, 3, 0, 0]}, "no node 7"),
        ({"nodes_featureids": [5, 0, 1, 0, 0]}, "column 5"),
        ({"nodes_values": [0.5]}, "differ in length"),
        ({"nodes_nodeids": [0, 1, 1, 3, 4]}, "one number"),
        ({"nodes_modes": ["BRANCH_LEQ", "LEAF", "OFF", "LEAF", "LEAF"]}, "'OFF'"),
        ({"target_ids": [0, 4, 0]}, "target 4"),
        ({"aggregate_function": "MEDIAN"}, "'MEDIAN'"),
        ({"post_transform": "CUBE"}, "'CUBE'"),
    ],
)
def test_malformed_trees_are_errors(changes: dict[str, Any], message: str) -> None:
    model, inputs = _regressor(np.zeros([2, 2], np.float32), **changes)
    with pytest.raises(OnnxError, match=message):
        imported(model, inputs)


def test_sets_become_chains() -> None:
    integers, floats = onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT
    nan = float("nan")
    attributes = {
        "nodes_featureids": [0, 0, 0],
        "nodes_splits": helper.make_tensor("s", floats, [3], [3.0, 0.0, 0.0]),
        "nodes_modes": helper.make_tensor("m", integers, [3], [0, 6, 6]),
        "nodes_truenodeids": [1, 0, 2],
        "nodes_falsenodeids": [2, 1, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falseleafs": [0, 1, 1],
        "leaf_targetids": [0, 1, 2, 3],
        "leaf_weights": helper.make_tensor("w", floats, [4], [1.0, 10.0, 1000.0, 100.0]),
        "tree_roots": [0],
        "membership_values": helper.make_tensor("v", floats, [6], [1.5, 2.5, nan, 12.0, 7.0, nan]),
        "n_targets": 4,
    }
    x = np.array([[1.5], [2.0], [7.0], [12.0], [8.0]], np.float32)
    model = one_node("TreeEnsemble", [x], domain="ai.onnx.ml", opset=5, **attributes)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("o0", floats, [None, 4]))
    (found,) = imported(model, {"i0": x})
    assert found.sum(1).tolist() == [1, 10, 1000, 1000, 100]
