"""Pipelines of scikit-learn by skl2onnx."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.conformance.onnx_files.case import FileCase, integers


def _classes(x: Any, count: int) -> Any:
    score = x[:, 0] * x[:, 1] + x[:, 2]
    return np.digitize(score, np.quantile(score, np.linspace(0, 1, count + 1)[1:-1]))


def _scaled(name: str, count: int = 2) -> Callable[[Any], Any]:
    def make(x: Any) -> Any:
        from sklearn import ensemble, linear_model, neighbors, svm
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        estimator = {
            "logistic": lambda: linear_model.LogisticRegression(),
            "forest": lambda: ensemble.RandomForestClassifier(10, random_state=0),
            "boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=20, random_state=0),
            "svc": lambda: svm.SVC(random_state=0),
            "svr": lambda: svm.SVR(),
            "neighbors": lambda: neighbors.KNeighborsClassifier(3),
        }[name]()
        return make_pipeline(StandardScaler(), estimator).fit(x, _classes(x, count))

    return make


def _one_hot(x: Any) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    numbers = np.random.default_rng(1).integers(0, 5, x.shape).astype(np.int64)
    return make_pipeline(OneHotEncoder(), LogisticRegression()).fit(numbers, numbers[:, 0] > numbers[:, 1])


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "logistic": _scaled("logistic"),
    "logistic-many": _scaled("logistic", 4),
    "forest": _scaled("forest", 3),
    "boosting": _scaled("boosting", 3),
    "svc": _scaled("svc"),
    "svc-many": _scaled("svc", 4),
    "svr": _scaled("svr"),
    "neighbors": _scaled("neighbors", 3),
    "one-hot": _one_hot,
}

CASES: tuple[FileCase, ...] = tuple(
    FileCase(
        f"scikit/{name}",
        "skl2onnx",
        calls=({"X_0": 16}, {"X_0": 5}),
        kinds={"X": integers(0, 5)} if name == "one-hot" else {},
    )
    for name in _MAKERS
)


def make(name: str, path: Path) -> None:
    """Trains and converts a pipeline."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType

    x = np.random.default_rng(0).standard_normal((200, 6)).astype(np.float32)
    pipeline = _MAKERS[name](x)
    kind = Int64TensorType if name == "one-hot" else FloatTensorType
    options = {id(pipeline): {"zipmap": False}} if hasattr(pipeline, "classes_") else None
    target = {"": 18, "ai.onnx.ml": 3}
    made = to_onnx(pipeline, initial_types=[("X", kind([None, 6]))], options=options, target_opset=target)
    path.write_bytes(made.SerializeToString())
