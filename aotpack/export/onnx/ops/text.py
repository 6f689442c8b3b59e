"""Text: n-grams of integers; strings are refused."""

from __future__ import annotations

from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator

Tensor = torch.Tensor


@operator("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(node: Node, x: Tensor) -> Tensor:
    pool = node.get("pool_int64s")
    if not pool:
        raise node.error("its n-grams are strings, which are not supported", hint="count them before the model")
    starts, columns = node.require("ngram_counts"), node.require("ngram_indexes")
    least, most, skips = (node.require(name) for name in ("min_gram_length", "max_gram_length", "max_skip_count"))
    rows = x.unsqueeze(0) if x.dim() == 1 else x
    counts = torch.zeros([rows.shape[0], max(columns, default=-1) + 1], dtype=torch.float32)
    done = 0
    for number, start in enumerate(starts):
        size = number + 1
        end = starts[number + 1] if number + 1 < len(starts) else len(pool)
        grams = torch.tensor(pool[start:end], dtype=x.dtype).reshape(-1, size)
        own = columns[done : done + grams.shape[0]]
        done += grams.shape[0]
        if not own or not least <= size <= most:
            continue
        for skip in range(1 if size == 1 else skips + 1):
            reach = (size - 1) * (skip + 1) + 1
            if reach > rows.shape[1]:
                continue
            windows = rows.unfold(1, reach, 1)[..., :: skip + 1]
            found = (windows.unsqueeze(2) == grams).all(3).sum(1).to(torch.float32)
            counts = counts.index_add(1, torch.tensor(own), found)
    weights: Any = node.get("weights")
    factors = torch.ones([counts.shape[1]])
    if weights:
        factors = torch.zeros([counts.shape[1]])
        for column, weight in zip(columns, weights, strict=True):
            factors[column] = weight
    match node.require("mode"):
        case "IDF":
            counts = (counts > 0).to(torch.float32) * factors
        case "TFIDF":
            counts = counts * factors
    return counts.reshape(-1) if x.dim() == 1 else counts


@operator("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch")
def of_strings(node: Node, *inputs: Any) -> Tensor:
    raise node.error("strings are not supported", hint="prepare them before the model")
