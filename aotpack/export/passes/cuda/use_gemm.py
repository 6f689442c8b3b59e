"""Matrix products become calls of this project's kernel."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, is_contiguous, shape_of

aten = torch.ops.aten

_PRODUCTS = (
    aten.linear.default,
    aten.matmul.default,
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
)


def use_gemm(program: Program) -> Program:
    """Replaces products of matrices by `aotpack::cuda_gemm`."""
    # Triton is there where something is built for CUDA.
    from aotpack.export.ops.cuda import gemm

    rewriter = Rewriter(program)
    for node in rewriter.nodes(*_PRODUCTS):
        replacement = _replacement(rewriter, node, gemm)
        if replacement is not None:
            rewriter.report(node, f"{str(node.target).removeprefix('aten.')} by our kernel")
            rewriter.replace(node, replacement)
    return rewriter.finish("use-gemm", f"{rewriter.changed} matrix products by our kernel")


def _replacement(rewriter: Rewriter, node: torch.fx.Node, gemm: Any) -> torch.fx.Node | None:
    arguments = bound_arguments(node)
    alpha, beta = arguments.get("alpha", 1), arguments.get("beta", 1)
    if dtype_of(node) not in gemm.DTYPES or not isinstance(alpha, (int, float)) or not isinstance(beta, (int, float)):
        return None
    a, b, added = _operands(node, arguments)
    if min(len(shape_of(a)), len(shape_of(b))) < 2 or not dtype_of(a) == dtype_of(b) == dtype_of(node):
        return None

    def call(op: Any, *args: Any) -> torch.fx.Node:
        return rewriter.call(op, args, node)

    if node.target is aten.linear.default:
        b = call(aten.t.default, b)
    if beta == 0:
        # torch does not read it then.
        added = None
    bias = None
    if added is not None and beta == 1 and _is_bias(added, b):
        bias, added = added, None
    result = call(gemm.OPERATOR, a, b, bias, float(alpha), 0)
    if added is not None:
        result = call(aten.add.Tensor, result, added if beta == 1 else call(aten.mul.Tensor, added, beta))
    return result


def _operands(node: torch.fx.Node, arguments: dict[str, Any]) -> tuple[torch.fx.Node, torch.fx.Node, Any]:
    """The matrices, and what is added to their product."""
    if node.target is aten.linear.default:
        return arguments["input"], arguments["weight"], arguments["bias"]
    if node.target is aten.addmm.default:
        return arguments["mat1"], arguments["mat2"], arguments["self"]
    if node.target is aten.baddbmm.default:
        return arguments["batch1"], arguments["batch2"], arguments["self"]
    return arguments["self"], arguments["other" if node.target is aten.matmul.default else "mat2"], None


def _is_bias(added: torch.fx.Node, b: torch.fx.Node) -> bool:
    """Whether it is a contiguous vector with an element per column."""
    value, columns = added.meta["val"], shape_of(b)[-1]
    return len(value.shape) == 1 and isinstance(columns, int) and value.shape[0] == columns and is_contiguous(value)
