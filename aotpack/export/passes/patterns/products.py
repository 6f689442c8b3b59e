"""Matrix products with a constant matrix, in all forms that a graph may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, shape_of

aten = torch.ops.aten

PRODUCTS = (aten.linear.default, aten.addmm.default, aten.mm.default, aten.matmul.default)


@dataclass(frozen=True)
class Product:
    """y[..., n] = alpha * (x[..., k] @ matrix) + beta * bias.

    Attributes:
        node: the call.
        x: its argument that is not a constant.
        weight: the node of the matrix, behind any transpositions; for `product_of`, a `get_attr`.
        rows: whether the matrix lies as [n, k], as torch.nn.Linear holds it, and not as [k, n].
        bias: of any shape that can be added to the result; None where there is none.
    """

    node: torch.fx.Node
    x: torch.fx.Node
    weight: torch.fx.Node
    rows: bool
    bias: torch.fx.Node | None
    alpha: float = 1
    beta: float = 1

    @property
    def outputs(self) -> int:
        """n."""
        size: int = shape_of(self.weight)[0 if self.rows else 1]
        return size


def product_of(rewriter: Rewriter, node: torch.fx.Node) -> Product | None:
    """The product with a constant matrix that a call computes; None where it computes something else."""
    product = operands_of(node)
    return product if product is not None and rewriter.constant(product.weight) is not None else None


def operands_of(node: torch.fx.Node) -> Product | None:
    """The product with a matrix that a call computes, which may be any value."""
    if node.op != "call_function" or node.target not in PRODUCTS:
        return None
    arguments = bound_arguments(node)
    alpha = beta = 1
    bias = None
    rows = node.target is aten.linear.default
    if node.target is aten.linear.default:
        x, matrix, bias = arguments["input"], arguments["weight"], arguments["bias"]
    elif node.target is aten.addmm.default:
        x, matrix, bias = arguments["mat1"], arguments["mat2"], arguments["self"]
        alpha, beta = arguments["alpha"], arguments["beta"]
        if not _is_number(alpha) or not _is_number(beta):
            return None
        if beta == 0:
            bias = None  # torch does not read it then
    else:
        x, matrix = arguments["self"], arguments["mat2" if node.target is aten.mm.default else "other"]
    weight, flipped = _behind_transpositions(matrix)
    if not isinstance(weight, torch.fx.Node) or len(shape_of(weight)) != 2 or not dtype_of(weight).is_floating_point:
        return None
    if dtype_of(x) != dtype_of(weight) or len(shape_of(x)) == 0 or len(shape_of(x)) != len(shape_of(node)):
        return None
    return Product(node, x, weight, rows != flipped, bias, alpha, beta)


def lies_along(shape: Sequence[Any], rank: int, axis: int, channels: int) -> bool:
    """Whether a tensor added to one of `rank` dims broadcasts along all of them but `axis`, which has `channels`.

    Never adds a guard: a size that is not known is not taken for 1.
    """
    if len(shape) > rank:
        return False
    for d, size in enumerate(shape, start=rank - len(shape)):
        if not isinstance(size, int) or size not in ((1, channels) if d == axis else (1,)):
            return False
    return True


def matrix_readers(rewriter: Rewriter, weight: torch.fx.Node) -> int:
    """How many calls read a constant, as it is or transposed."""
    return sum(_readers(node) for node in rewriter.graph.find_nodes(op="get_attr") if node.target == weight.target)


def _readers(node: torch.fx.Node) -> int:
    return sum(1 if _swaps(user) is None else _readers(user) for user in node.users)


def _behind_transpositions(node: Any) -> tuple[Any, bool]:
    """The value that a matrix is a transposition of, and whether their dims are swapped."""
    flipped = False
    while isinstance(node, torch.fx.Node) and (swaps := _swaps(node)) is not None:
        flipped, node = flipped != swaps, node.args[0]
    return node, flipped


def _swaps(node: torch.fx.Node) -> bool | None:
    """Whether a call that permutes the dims of a matrix swaps them; None for any other call."""
    if node.op != "call_function" or node.target not in _TRANSPOSITIONS or len(shape_of(node)) != 2:
        return None
    arguments = bound_arguments(node)
    if node.target is aten.t.default:
        return True
    if node.target is aten.transpose.int:
        return bool((arguments["dim0"] - arguments["dim1"]) % 2)
    return bool(arguments["dims"][0] % 2)


_TRANSPOSITIONS = (aten.t.default, aten.transpose.int, aten.permute.default)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))
