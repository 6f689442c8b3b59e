"""Ensembles of decision trees. All trees go down one level at a time, as gathers from tables of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import ML, operator
from aotpack.export.onnx.ops.scores import labels_of, transformed

Tensor = torch.Tensor

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(7)
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_MOST_LEVELS = 1024


@dataclass(eq=False)
class Trees:
    """Trees as tables of nodes.

    Attributes:
        feature, mode, yes, no: int64 per node: the column, the comparison, the next node where it holds or fails.
            Leaves lead to themselves.
        value: per node, what the column is compared with.
        missing: per node, whether it holds for NaN.
        roots: the first node of each tree.
        leaves, targets, weights: per weight of a leaf: the node, the target, the number.
    """

    feature: NDArray[np.int64]
    mode: NDArray[np.int64]
    yes: NDArray[np.int64]
    no: NDArray[np.int64]
    value: NDArray[np.float64]
    missing: NDArray[np.bool_]
    roots: NDArray[np.int64]
    leaves: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.float64]


def _floats(node: Node, name: str) -> NDArray[np.float64] | None:
    """Numbers of an attribute, which may be a tensor under another name."""
    tensor = node.arrays.get(f"{name}_as_tensor")
    if tensor is not None and tensor.size:
        return tensor.astype(np.float64)
    value = node.get(name)
    return None if value is None else np.asarray(value, dtype=np.float64)


def _tensor(node: Node, name: str) -> NDArray[Any]:
    if name not in node.arrays:
        raise node.error(f"has no attribute {name!r} that is a tensor")
    return node.arrays[name]


def _same_length(node: Node, **arrays: NDArray[Any]) -> None:
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise node.error(f"its attributes differ in length: {', '.join(f'{n} {s}' for n, s in sizes.items())}")


def _of_ids(node: Node, prefix: str) -> Trees:
    """Trees of nodes with numbers, as `TreeEnsembleRegressor` (prefix "target") and `…Classifier` ("class") have."""
    tree = np.asarray(node.require("nodes_treeids"), dtype=np.int64)
    own = np.asarray(node.require("nodes_nodeids"), dtype=np.int64)
    feature = np.asarray(node.require("nodes_featureids"), dtype=np.int64)
    yes = np.asarray(node.require("nodes_truenodeids"), dtype=np.int64)
    no = np.asarray(node.require("nodes_falsenodeids"), dtype=np.int64)
    modes = node.require("nodes_modes")
    value = _floats(node, "nodes_values")
    if value is None:
        raise node.error("has no attribute 'nodes_values'")
    missing = np.asarray(node.get("nodes_missing_value_tracks_true") or [0] * len(own), dtype=np.bool_)
    _same_length(node, treeids=tree, nodeids=own, featureids=feature, truenodeids=yes, falsenodeids=no,
                 modes=np.asarray(modes), values=value, missing_value_tracks_true=missing)  # fmt: skip
    if not len(own):
        raise node.error("it has no nodes")
    places = {key: i for i, key in enumerate(zip(tree.tolist(), own.tolist(), strict=True))}
    if len(places) != len(own):
        raise node.error("two of its nodes have one number")
    unknown = sorted(set(modes) - {*_MODES, "LEAF"})
    if unknown:
        raise node.error(f"the mode {unknown[0]!r} of a node is unknown")
    codes = {name: i for i, name in enumerate(_MODES)} | {"LEAF": -1}
    mode = np.asarray([codes[name] for name in modes], dtype=np.int64)
    leaf, itself = mode < 0, np.arange(len(own))

    def place(tree_id: int, node_id: int) -> int:
        found = places.get((tree_id, node_id))
        if found is None:
            raise node.error(f"the tree {tree_id} has no node {node_id}")
        return found

    yes_at, no_at = (
        np.asarray([i if end else place(t, n) for i, end, t, n in zip(itself, leaf, tree, ids, strict=True)])
        for ids in (yes, no)
    )
    _, roots = np.unique(tree, return_index=True)
    at_tree = np.asarray(node.require(f"{prefix}_treeids"), dtype=np.int64)
    at_node = np.asarray(node.require(f"{prefix}_nodeids"), dtype=np.int64)
    targets = np.asarray(node.require(f"{prefix}_ids"), dtype=np.int64)
    weights = _floats(node, f"{prefix}_weights")
    if weights is None:
        raise node.error(f"has no attribute '{prefix}_weights'")
    _same_length(node, treeids=at_tree, nodeids=at_node, ids=targets, weights=weights)
    leaves = np.asarray([place(t, n) for t, n in zip(at_tree, at_node, strict=True)], dtype=np.int64)
    used, modes_at = np.where(leaf, 0, feature), np.where(leaf, _LEQ, mode)
    return Trees(used, modes_at, yes_at, no_at, value, missing, roots, leaves, targets, weights)


def _depth(node: Node, trees: Trees) -> int:
    """Steps from roots to the deepest leaf."""
    front, depth = np.unique(trees.roots), 0
    while True:
        front = front[(trees.yes[front] != front) | (trees.no[front] != front)]
        if not len(front):
            return depth
        depth += 1
        if depth > _MOST_LEVELS:
            raise node.error(f"its trees have a cycle, or more than {_MOST_LEVELS} levels")
        front = np.unique(np.concatenate([trees.yes[front], trees.no[front]]))


def _holds(trees: Trees, x: Tensor, places: Tensor) -> Tensor:
    """Whether the comparison of the nodes `places` holds for what their columns hold, `x`."""
    threshold = torch.tensor(trees.value, dtype=x.dtype)[places]
    used = sorted(set(trees.mode.tolist()))
    results = [_COMPARISONS[mode](x, threshold) for mode in used]
    holds = results[-1]
    if len(used) > 1:
        mode = torch.tensor(trees.mode)[places]
        for code, result in zip(used[-2::-1], results[-2::-1], strict=True):
            holds = torch.where(mode == code, result, holds)
    if trees.missing.any():
        holds = holds | (torch.tensor(trees.missing)[places] & torch.isnan(x))
    return holds


_COMPARISONS = {
    _LEQ: torch.le,
    _LT: torch.lt,
    _GTE: torch.ge,
    _GT: torch.gt,
    _EQ: torch.eq,
    _NEQ: torch.ne,
}


def _reached(node: Node, trees: Trees, x: Tensor) -> Tensor:
    """The leaf of each row in each tree: int64[trees, rows], so that the nodes of one tree are in the nearest cache."""
    features = x.shape[1]
    if isinstance(features, int) and not (trees.feature.min() >= 0 and trees.feature.max() < features):
        raise node.error(f"a node looks at column {trees.feature.max()}, the input has {features}")
    feature, yes, no = torch.tensor(trees.feature), torch.tensor(trees.yes), torch.tensor(trees.no)
    places = torch.tensor(trees.roots).unsqueeze(1).expand(-1, x.shape[0])
    rows = torch.arange(x.shape[0]).unsqueeze(0)
    for _ in range(_depth(node, trees)):
        places = torch.where(_holds(trees, x[rows, feature[places]], places), yes[places], no[places])
    return places


def _scores(node: Node, trees: Trees, x: Tensor, targets: int, aggregate: str) -> Tensor:
    """The numbers of the leaves, put together: [rows, targets]."""
    if len(trees.targets) and not (trees.targets.min() >= 0 and trees.targets.max() < targets):
        raise node.error(f"a leaf is of target {trees.targets.max()}, there are {targets}")
    if aggregate not in _AGGREGATES:
        raise node.error(f"the aggregate function {aggregate!r} is unknown")
    # Without end there would be no owners.
    _depth(node, trees)
    owner = _owners(trees)
    if aggregate in ("SUM", "AVERAGE") and owner is not None:
        # Each tree is of one target: its leaves have one number.
        order = np.argsort(owner, kind="stable")
        trees.roots = trees.roots[order]
        counts = np.bincount(owner, minlength=targets).tolist()
        weights = np.zeros(len(trees.yes))
        np.add.at(weights, trees.leaves, trees.weights)
        found = torch.tensor(weights, dtype=x.dtype)[_reached(node, trees, x)]
        total = torch.stack([part.sum(0) for part in found.split(counts)], 1)
    else:
        empty = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
        table = np.full((len(trees.yes), targets), empty)
        function = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
        function.at(table, (trees.leaves, trees.targets), trees.weights)
        found = torch.tensor(table, dtype=x.dtype)[_reached(node, trees, x)]
        if aggregate == "MIN":
            total = found.amin(0)
        elif aggregate == "MAX":
            total = found.amax(0)
        else:
            total = found.sum(0)
        if aggregate in ("MIN", "MAX"):
            total = torch.where(total.isinf(), torch.zeros_like(total), total)
    return total / len(trees.roots) if aggregate == "AVERAGE" else total


def _owners(trees: Trees) -> NDArray[np.int64] | None:
    """The target of each tree; None if a tree has several."""
    tree_of = np.full(len(trees.yes), -1, dtype=np.int64)
    front = trees.roots
    number = np.arange(len(front))
    while len(front):
        tree_of[front] = number
        inner = (trees.yes[front] != front) | (trees.no[front] != front)
        front, number = front[inner], number[inner]
        front, number = np.concatenate([trees.yes[front], trees.no[front]]), np.concatenate([number, number])
        front, first = np.unique(front, return_index=True)
        number = number[first]
    owner = np.full(len(trees.roots), -1, dtype=np.int64)
    of_tree = tree_of[trees.leaves]
    owner[of_tree[of_tree >= 0]] = trees.targets[of_tree >= 0]
    if (owner[of_tree[of_tree >= 0]] != trees.targets[of_tree >= 0]).any():
        return None
    return np.maximum(owner, 0)


def _matrix(node: Node, x: Tensor) -> Tensor:
    if x.dim() == 1:
        x = x.unsqueeze(0)
    if x.dim() != 2:
        raise node.error(f"the input has {x.dim()} dims, not 2")
    return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)


def _based(node: Node, scores: Tensor) -> Tensor:
    base = _floats(node, "base_values")
    if base is None or not len(base):
        return scores
    return scores + torch.tensor(base, dtype=scores.dtype)


@operator("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(node: Node, x: Tensor) -> Tensor:
    x = _matrix(node, x)
    targets = node.get("n_targets", 1)
    scores = _scores(node, _of_ids(node, "target"), x, targets, node.get("aggregate_function", "SUM"))
    return transformed(node, _based(node, scores)).to(torch.float32)


@operator("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(node: Node, x: Tensor) -> tuple[Tensor, Tensor]:
    x = _matrix(node, x)
    integers, strings = node.get("classlabels_int64s"), node.get("classlabels_strings")
    classes = len(integers or strings or [])
    trees = _of_ids(node, "class")
    used = sorted(set(trees.targets.tolist()))
    if classes <= 2 and len(used) == 1:
        trees.targets = np.zeros_like(trees.targets)
        return _of_two(node, trees, x, integers, strings)
    scores = _based(node, _scores(node, trees, x, classes, "SUM"))
    labels = labels_of(node, torch.argmax(scores, 1), integers, strings)
    return labels, transformed(node, scores).to(torch.float32)


def _of_two(
    node: Node, trees: Trees, x: Tensor, integers: list[int] | None, strings: list[str] | None
) -> tuple[Tensor, Tensor]:
    """Of two classes the trees score one, the second."""
    score = _scores(node, trees, x, 1, "SUM")
    base = _floats(node, "base_values")
    if base is not None and len(base):
        score = score + float(base[-1])
    transform = node.get("post_transform", "NONE")
    positive = bool((trees.weights >= 0).all())
    labels = labels_of(node, (score[:, 0] > (0.5 if positive else 0.0)).to(torch.int64), integers, strings)
    if transform == "PROBIT":
        return labels, transformed(node, score).to(torch.float32)
    if positive:
        return labels, torch.cat([1 - score, score], 1).to(torch.float32)
    both = torch.cat([-score, score], 1)
    return labels, (torch.sigmoid(both) if transform == "LOGISTIC" else both).to(torch.float32)


# ---- the operator of opset 5 ----------------------------------------------------------------------------------------


@operator("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(node: Node, x: Tensor) -> Tensor:
    dtype, x = x.dtype, _matrix(node, x)
    trees = _of_places(node)
    aggregate = node.get("aggregate_function", 1)
    if not 0 <= aggregate < len(_AGGREGATES):
        raise node.error(f"the aggregate function {aggregate} is unknown")
    scores = _scores(node, trees, x, node.get("n_targets", 1), _AGGREGATES[aggregate])
    return transformed(node, scores, node.get("post_transform", 0)).to(dtype)


def _of_places(node: Node) -> Trees:
    def integers(name: str) -> NDArray[np.int64]:
        return np.asarray(node.require(name), dtype=np.int64)

    feature, mode = integers("nodes_featureids"), _tensor(node, "nodes_modes").astype(np.int64)
    value = _tensor(node, "nodes_splits").astype(np.float64)
    yes, no = integers("nodes_truenodeids"), integers("nodes_falsenodeids")
    yes_leaf, no_leaf = integers("nodes_trueleafs") != 0, integers("nodes_falseleafs") != 0
    missing = np.asarray(node.get("nodes_missing_value_tracks_true") or [0] * len(feature), dtype=np.bool_)
    targets, weights = integers("leaf_targetids"), _tensor(node, "leaf_weights").astype(np.float64)
    roots = integers("tree_roots")
    _same_length(node, featureids=feature, modes=mode, splits=value, truenodeids=yes, falsenodeids=no,
                 trueleafs=yes_leaf, falseleafs=no_leaf, missing_value_tracks_true=missing)  # fmt: skip
    _same_length(node, targetids=targets, weights=weights)
    inner, leaves = len(feature), len(targets)
    if not len(roots) or roots.min() < 0 or roots.max() >= inner:
        raise node.error("a root of a tree is not one of its nodes")
    for ends, is_leaf in ((yes, yes_leaf), (no, no_leaf)):
        limit = np.where(is_leaf, leaves, inner)
        if ((ends < 0) | (ends >= limit)).any():
            raise node.error("a node leads to a node that does not exist")
    if ((mode < 0) | (mode > _MEMBER)).any():
        raise node.error("the mode of a node is unknown")
    # Leaves follow the nodes.
    itself = inner + np.arange(leaves)
    trees = Trees(
        np.concatenate([feature, np.zeros(leaves, np.int64)]),
        np.concatenate([mode, np.full(leaves, _LEQ)]),
        np.concatenate([np.where(yes_leaf, yes + inner, yes), itself]),
        np.concatenate([np.where(no_leaf, no + inner, no), itself]),
        np.concatenate([value, np.zeros(leaves)]),
        np.concatenate([missing, np.zeros(leaves, np.bool_)]),
        roots,
        itself,
        targets,
        weights,
    )
    return _without_sets(node, trees, inner)


def _without_sets(node: Node, trees: Trees, inner: int) -> Trees:
    """Nodes that ask for members of a set become a chain of nodes, one for each member."""
    where = np.flatnonzero(trees.mode[:inner] == _MEMBER)
    if not len(where):
        return trees
    members = node.arrays.get("membership_values")
    sets = _sets([] if members is None else members.tolist())
    if len(sets) != len(where):
        raise node.error(f"it has {len(where)} nodes that ask for members and {len(sets)} sets")
    grown: dict[str, list[Any]] = {name: [] for name in ("feature", "mode", "yes", "no", "value", "missing")}
    count = len(trees.yes)
    for at, values in zip(where.tolist(), sets, strict=True):
        otherwise = int(trees.no[at])
        # An empty set has no members: nothing equals NaN.
        first, *rest = values or [np.nan]
        for value in rest:
            entry = (trees.feature[at], _EQ, trees.yes[at], otherwise, value, trees.missing[at])
            for name, item in zip(grown, entry, strict=True):
                grown[name].append(item)
            otherwise = count
            count += 1
        trees.mode[at], trees.value[at], trees.no[at] = _EQ, first, otherwise
    for name, items in grown.items():
        array = getattr(trees, name)
        setattr(trees, name, np.concatenate([array, np.asarray(items, dtype=array.dtype)]))
    return trees


def _sets(values: Sequence[float]) -> list[list[float]]:
    """Sets that end with NaN each."""
    sets: list[list[float]] = []
    current: list[float] = []
    for value in values:
        if value != value:
            sets.append(current)
            current = []
        else:
            current.append(value)
    return sets
