"""Makes tied weights one constant: `get_attr` nodes that hold the same memory become one node."""

from __future__ import annotations

import torch.fx

from aotpack.export.ir.program import Change, ConstantInfo, Program
from aotpack.export.ir.rewriter import Rewriter


def merge_tied(program: Program) -> Program:
    """Merges constants that are the same view of one storage; the name that comes first stays, all are recorded."""
    rewriter = Rewriter(program)
    first: dict[object, torch.fx.Node] = {}
    for node in list(rewriter.graph.nodes):
        key = None if rewriter.constant(node) is None else rewriter.identity(node)
        if key is None:
            continue
        kept = first.setdefault(key, node)
        if kept is node:
            continue
        name, other = str(kept.target), str(node.target)
        if name != other:
            rewriter.changes.append(Change("", f"{other} is {name}"))
            info = rewriter.info(name)
            sources = tuple(dict.fromkeys((*info.sources, *rewriter.info(other).sources)))
            rewriter.constants[name] = ConstantInfo(info.role, sources)
        rewriter.replace(node, kept)
    return rewriter.finish("merge-tied", f"merged {rewriter.changed} uses of shared weights")
