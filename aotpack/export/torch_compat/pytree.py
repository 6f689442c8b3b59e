"""Functions of nested Python values (tuples, lists, dicts, dataclasses) and their tensors.

Private interface touched (torch 2.11 to 2.13): torch.utils._pytree
"""

from __future__ import annotations

from torch.utils._pytree import (
    SUPPORTED_NODES,
    SequenceKey,
    TreeSpec,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_map_only,
    tree_map_with_path,
    tree_structure,
    tree_unflatten,
)

__all__ = [
    "SUPPORTED_NODES",
    "SequenceKey",
    "TreeSpec",
    "keystr",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
]
