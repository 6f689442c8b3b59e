"""Calls in which several inputs are one tensor, as `model(x, x)`.

Such a call is traced with a tensor for each input, of which the model gets the first in the place of the others: what
it writes to one is then written to all, `a is b` holds, and the gradient of the first is that of all. The trace reads
no input but the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from aotpack.export.torch_compat import pytree
from aotpack.export.tracing.numbers import with_call


def as_one(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], same: Mapping[int, int]
) -> torch.nn.Module:
    """The module whose forward gets leaf `same[i]` of a call in the place of leaf `i`.

    `args`, `kwargs`: the example call whose leaves are counted.
    """
    if not same:
        return module
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path((args, kwargs))[0]]
    sources = {paths[leaf]: paths[source] for leaf, source in same.items()}

    def shared(args: Any, kwargs: Any) -> Any:
        flat, tree = pytree.tree_flatten_with_path((args, kwargs))
        # Keyword arguments may come in another order than in the example call.
        values = {pytree.keystr(path): value for path, value in flat}
        return pytree.tree_unflatten([values[sources.get(key, key)] for key in values], tree)

    return with_call(module, shared)
