"""Functions under `torch.compiler.nested_compile_region`.

torch.export has Dynamo trace each call of them anew, and forgets where it was. Here they are called, and their nodes
carry the call's number, by which a build finds what is repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from aotpack.export.ir.marks import annotation
from aotpack.export.overrides.table import replaces
from aotpack.export.torch_compat.nested_regions import NESTED_REGIONS, annotate, preserve_node_meta

_numbers = count()
_active: list[str] = []


@replaces(NESTED_REGIONS, "invoke_subgraph_placeholder")
def _called(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    # Of a region in a region the outer one counts.
    if _active:
        return func(*args, **kwargs)
    _active.append(f"{getattr(func, '__qualname__', 'region')}@{next(_numbers)}")
    try:
        with preserve_node_meta(), annotate(annotation(_active[-1])):
            return func(*args, **kwargs)
    finally:
        _active.pop()
