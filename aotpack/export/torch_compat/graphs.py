"""Nodes of graphs.

Private interface touched (torch 2.11 to 2.13): torch.fx.Node._erased
"""

from __future__ import annotations

import torch.fx


def is_erased(node: torch.fx.Node) -> bool:
    """Whether a node was removed from its graph."""
    return node._erased
