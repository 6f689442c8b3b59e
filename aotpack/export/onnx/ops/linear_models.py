"""Linear models and support vector machines of `ai.onnx.ml`."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import ML, operator
from aotpack.export.onnx.ops.scores import labels_of, transformed
from aotpack.export.torch_compat.higher_order import scan_of

Tensor = torch.Tensor


def _numbers(node: Node, name: str, dtype: torch.dtype) -> Tensor:
    return torch.tensor(node.get(name) or [], dtype=dtype)


def _matrix(x: Tensor) -> Tensor:
    x = x.unsqueeze(0) if x.dim() == 1 else x
    return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)


@operator("LinearRegressor", domain=ML)
def linear_regressor(node: Node, x: Tensor) -> Tensor:
    x = _matrix(x)
    coefficients = _numbers(node, "coefficients", x.dtype).reshape(node.get("targets", 1), -1)
    scores = x @ coefficients.t()
    if node.get("intercepts"):
        scores = scores + _numbers(node, "intercepts", x.dtype)
    return transformed(node, scores).to(torch.float32)


@operator("LinearClassifier", domain=ML)
def linear_classifier(node: Node, x: Tensor) -> tuple[Tensor, Tensor]:
    x = _matrix(x)
    integers, strings = node.get("classlabels_ints"), node.get("classlabels_strings")
    classes = len(integers or strings or [])
    intercepts = node.get("intercepts") or []
    rows = len(intercepts) or classes
    if not rows:
        raise node.error("it has neither intercepts nor labels of classes")
    scores = x @ _numbers(node, "coefficients", x.dtype).reshape(rows, -1).t()
    if intercepts:
        scores = scores + _numbers(node, "intercepts", x.dtype)
    if rows == 1:
        return _of_one(node, scores, integers, strings)
    labels = labels_of(node, torch.argmax(scores, 1), integers, strings)
    return labels, transformed(node, scores).to(torch.float32)


def _of_one(node: Node, scores: Tensor, integers: Any, strings: Any) -> tuple[Tensor, Tensor]:
    """The scores are those of the second of two classes, or of the only one."""
    places = (scores[:, 0] > 0).to(torch.int64)
    both = transformed(node, torch.cat([-scores, scores], 1)).to(torch.float32)
    if len(integers or strings or []) == 2:
        return labels_of(node, places, integers, strings), both
    only = transformed(node, scores).to(torch.float32)
    if integers:
        return torch.where(places == 1, integers[0], 0), only
    return labels_of(node, places, None, strings), only


# ---- support vectors ------------------------------------------------------------------------------------------------


def _kernel(node: Node, x: Tensor, vectors: Tensor) -> Tensor:
    """The kernel of each row and each support vector: [rows, vectors]."""
    gamma, offset, degree = [*(node.get("kernel_params") or []), 0.0, 0.0, 0.0][:3]
    kind = node.get("kernel_type", "LINEAR")
    if kind == "RBF":
        difference = x.unsqueeze(1) - vectors
        return torch.exp(-gamma * (difference * difference).sum(-1))
    product = x @ vectors.t()
    match kind:
        case "LINEAR":
            return product
        case "POLY":
            return torch.pow(gamma * product + offset, degree)
        case "SIGMOID":
            return torch.tanh(gamma * product + offset)
    raise node.error(f"the kernel {kind!r} is unknown")


@operator("SVMRegressor", domain=ML)
def svm_regressor(node: Node, x: Tensor) -> Tensor:
    x = _matrix(x)
    count = node.get("n_supports", 0)
    coefficients = _numbers(node, "coefficients", x.dtype)
    if count:
        vectors = _numbers(node, "support_vectors", x.dtype).reshape(count, -1)
        scores = _kernel(node, x, vectors) @ coefficients.reshape(count, 1)
    else:
        scores = x @ coefficients.reshape(-1, 1)
    scores = scores + _numbers(node, "rho", x.dtype)[:1]
    if node.get("one_class", 0):
        scores = torch.where(scores > 0, 1.0, -1.0)
    return transformed(node, scores).to(torch.float32)


@operator("SVMClassifier", domain=ML)
def svm_classifier(node: Node, x: Tensor) -> tuple[Tensor, Tensor]:
    x = _matrix(x)
    integers, strings = node.get("classlabels_ints"), node.get("classlabels_strings")
    classes = max(len(integers or strings or []), 1)
    counts = node.get("vectors_per_class") or []
    rho = node.get("rho") or []
    if not sum(counts):
        coefficients = _numbers(node, "coefficients", x.dtype).reshape(classes, -1)
        scores = x @ coefficients.t() + rho[0]
        return labels_of(node, torch.argmax(scores, 1), integers, strings), transformed(node, scores).to(torch.float32)
    if len(counts) != classes or len(rho) != classes * (classes - 1) // 2:
        raise node.error(f"it has {classes} classes, vectors of {len(counts)} and {len(rho)} numbers in rho")
    scores, votes = _duels(node, x, counts)
    if node.get("prob_a"):
        scores = _coupled(node, scores, classes)
        places = torch.argmax(scores if classes == 2 else votes, 1)
        return labels_of(node, places, integers, strings), transformed(node, scores).to(torch.float32)
    places = torch.argmax(votes, 1)
    if classes == 2:
        positive = all(c >= 0 for c in node.get("coefficients"))
        scores = torch.cat([1 - scores, scores] if positive else [-scores, scores], 1)
    return labels_of(node, places, integers, strings), transformed(node, scores).to(torch.float32)


def _duels(node: Node, x: Tensor, counts: list[int]) -> tuple[Tensor, Tensor]:
    """Scores of the pairs of classes, [rows, pairs], and how many of them each class wins, [rows, classes]."""
    classes, total = len(counts), sum(counts)
    starts = list(itertools.accumulate(counts, initial=0))
    vectors = _numbers(node, "support_vectors", x.dtype).reshape(total, -1)
    coefficients = _numbers(node, "coefficients", x.dtype).reshape(-1, total)
    pairs = list(itertools.combinations(range(classes), 2))
    # What a pair does not look at has the weight 0.
    weights = torch.zeros([len(pairs), total], dtype=x.dtype)
    for row, (i, j) in enumerate(pairs):
        of_i, of_j = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        weights[row, of_i], weights[row, of_j] = coefficients[j - 1, of_i], coefficients[i, of_j]
    scores = _kernel(node, x, vectors) @ weights.t() + _numbers(node, "rho", x.dtype)
    wins = torch.zeros([2, len(pairs), classes], dtype=x.dtype)
    for row, (i, j) in enumerate(pairs):
        wins[0, row, i], wins[1, row, j] = 1, 1
    first = (scores > 0).to(x.dtype)
    return scores, first @ wins[0] + (1 - first) @ wins[1]


def _coupled(node: Node, scores: Tensor, classes: int) -> Tensor:
    """Probabilities of classes by those of pairs, as libsvm has them (Wu, Lin and Weng 2004, algorithm 2)."""
    a, b = _numbers(node, "prob_a", scores.dtype), _numbers(node, "prob_b", scores.dtype)
    chance = (1 - torch.sigmoid(scores * a + b)).clamp(1e-7, 1 - 1e-7)
    rows = scores.shape[0]
    r = torch.zeros([rows, classes, classes], dtype=scores.dtype)
    for at, (i, j) in enumerate(itertools.combinations(range(classes), 2)):
        one = torch.zeros([classes, classes], dtype=scores.dtype)
        other = torch.zeros([classes, classes], dtype=scores.dtype)
        one[i, j], other[j, i] = 1, 1
        r = r + chance[:, at, None, None] * one + (1 - chance[:, at, None, None]) * other
    own = torch.diag_embed((r * r).sum(1))
    q = own - r * r.transpose(1, 2)
    p = torch.full([rows, classes], 1 / classes, dtype=scores.dtype)

    def step(p: Tensor, q: Tensor, _: Tensor) -> list[Tensor]:
        qp = (q * p.unsqueeze(1)).sum(2)
        pqp = (p * qp).sum(1, keepdim=True)
        done = (qp - pqp).abs().amax(1, keepdim=True) < 0.005 / classes
        new = p
        for t in range(classes):
            difference = (pqp - qp[:, t : t + 1]) / q[:, t, t].unsqueeze(1)
            one = torch.zeros([classes], dtype=p.dtype)
            one[t] = 1
            pqp = (pqp + difference * (difference * q[:, t, t].unsqueeze(1) + 2 * qp[:, t : t + 1])) / (
                1 + difference
            ) ** 2
            qp = (qp + difference * q[:, t, :]) / (1 + difference)
            new = (new + difference * one) / (1 + difference)
        return [torch.where(done, p, new), q.clone(), p[:, :1].clone()]

    most = max(100, classes)
    found, *_ = scan_of(step, [p, q], [torch.zeros([most, 1], dtype=scores.dtype)], [])
    return found
