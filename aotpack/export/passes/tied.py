"""Makes tied weights one constant: `get_attr` nodes that hold the same memory become one node."""

from __future__ import annotations

import torch.fx

from aotpack.export.editing import Editor
from aotpack.export.program import Change, ConstantInfo, Program


def merge_tied(program: Program) -> Program:
    """Merges constants that are the same view of one storage; the name that comes first stays, all are recorded."""
    editor = Editor(program)
    first: dict[object, torch.fx.Node] = {}
    for node in list(editor.graph.nodes):
        key = None if editor.constant(node) is None else editor.identity(node)
        if key is None:
            continue
        kept = first.setdefault(key, node)
        if kept is node:
            continue
        name, other = str(kept.target), str(node.target)
        if name != other:
            editor.changes.append(Change("", f"{other} is {name}"))
            info = editor.info(name)
            sources = tuple(dict.fromkeys((*info.sources, *editor.info(other).sources)))
            editor.constants[name] = ConstantInfo(info.role, sources)
        editor.replace(node, kept)
    return editor.finish("merge-tied", f"merged {editor.changed} uses of shared weights")
