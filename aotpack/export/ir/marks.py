"""Marks of nodes: which call of a function under `torch.compiler.nested_compile_region` they were traced in."""

from __future__ import annotations

import torch.fx

# torch carries what is under "custom" from trace to trace.
_CUSTOM = "custom"
_KEY = "aotpack_region"


def annotation(call: str) -> dict[str, str]:
    """What `torch.fx.traceback.annotate` has of a call."""
    return {_KEY: call}


def marked_call(node: torch.fx.Node) -> str | None:
    """The call that a node belongs to: the name of the function and a number, `Block.forward@3`."""
    call = (node.meta.get(_CUSTOM) or {}).get(_KEY)
    return None if call is None else str(call)


def mark(node: torch.fx.Node, call: str) -> None:
    """Notes the call that a node belongs to."""
    node.meta[_CUSTOM] = {**(node.meta.get(_CUSTOM) or {}), **annotation(call)}
