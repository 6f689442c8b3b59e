"""The guards of a `.pt2` file: torch keeps them as Python code over the arguments, beside the program."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from aotpack.errors import CaptureError
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.export import guards_code
from aotpack.export.torch_compat.symbolic_shapes import ShapeGuard, SLoc


def restore_guards(exported: ExportedProgram) -> None:
    """Puts the guards of a loaded program back into its shape environment, where `DimTable` looks for them.

    Raises:
        CaptureError: one cannot be read.
    """
    env = shape_env.graph_environment(exported.graph)
    if env is None:
        return
    names = {"L": _arguments(exported), "math": math, "torch": torch, "all_of": _joined(sympy.And)}
    names |= {"any_of": _joined(sympy.Or), "opposite": lambda value: sympy.Not(_condition(value))}
    for code in guards_code(exported):
        try:
            tree = ast.fix_missing_locations(_Symbolic().visit(ast.parse(code, mode="eval")))
            expr = _condition(eval(compile(tree, "<guard>", "eval"), names))
        except Exception as error:
            raise CaptureError(
                f"the exported program relies on {code}, which cannot be read: {error}",
                hint="capture the model itself by aot_export",
            ) from error
        if expr != sympy.true:
            env.guards.append(ShapeGuard(expr, SLoc(None, f"the exported program: {code}"), False))


def _arguments(exported: ExportedProgram) -> dict[str, Any]:
    """The fake arguments by the names of the parameters."""
    values = {node.name: node.meta["val"] for node in exported.graph.find_nodes(op="placeholder")}
    inputs = [values.get(name) if isinstance(name, str) else name for name in exported.graph_signature.user_inputs]
    args, kwargs = pytree.tree_unflatten(inputs, exported.call_spec.in_spec)
    signature = exported.module_call_graph[0].signature
    names = (signature.forward_arg_names if signature is not None else None) or []
    found = dict(zip(names, args, strict=False)) | dict(kwargs)
    if len(args) > len(names):
        # What is left over was in `*args`.
        found["args"] = args[max(len(names) - 1, 0) :] if names and names[-1] == "args" else args[len(names) :]
    return found


class _Symbolic(ast.NodeTransformer):
    """`and`, `or` and `not` as calls: on symbolic values they would ask for an answer."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "all_of" if isinstance(node.op, ast.And) else "any_of"
        return ast.Call(ast.Name(name, ast.Load()), node.values, [])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.Call(ast.Name("opposite", ast.Load()), [node.operand], [])

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        sides = [node.left, *node.comparators]
        pairs = [ast.Compare(a, [op], [b]) for a, op, b in zip(sides, node.ops, sides[1:], strict=False)]
        return ast.Call(ast.Name("all_of", ast.Load()), list(pairs), [])


def _joined(junction: Any) -> Callable[..., sympy.Basic]:
    def join(*values: Any) -> sympy.Basic:
        result: sympy.Basic = junction(*map(_condition, values))
        return result

    return join


def _condition(value: Any) -> sympy.Basic:
    return value if isinstance(value, sympy.Basic) else shape_env.expression(value)
