"""Linear layers whose weights are int8 become calls of kernels that read these, in place of dequantized copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, as_node, bound_arguments, dtype_of, is_contiguous, shape_of

aten = torch.ops.aten

_PRODUCTS = (
    aten.linear.default,
    aten.mm.default,
    aten.matmul.default,
    aten.addmm.default,
    aten._weight_int8pack_mm.default,
)
# They hold every int8 number.
_FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_CASTS = (aten.to.dtype, aten._to_copy.default)
_TRANSPOSITIONS = (aten.t.default, aten.transpose.int, aten.permute.default)


@dataclass(frozen=True)
class _Weight:
    """An int8 matrix, [n, k] or transposed, and factors of the n rows, of any shape that has one element for each."""

    matrix: torch.fx.Node
    transposed: bool
    scale: torch.fx.Node | None


def use_int8_weight(program: Program) -> Program:
    """Replaces products by dequantized matrices, one factor per column of the result, and `_weight_int8pack_mm`."""
    # Triton is there where something is built for CUDA.
    from aotpack.export.ops.cuda import int8_weight

    rewriter = Rewriter(program)
    for node in rewriter.nodes(*_PRODUCTS):
        replacement = _replacement(rewriter, node, int8_weight)
        if replacement is not None:
            rewriter.report(node, "product with int8 weights by our kernel")
            _replace(rewriter, node, replacement)
    return rewriter.finish("use-int8-weight", f"{rewriter.changed} products with int8 weights by our kernel")


def _replacement(rewriter: Rewriter, node: torch.fx.Node, int8_weight: Any) -> torch.fx.Node | None:
    arguments = bound_arguments(node)
    if arguments.get("alpha", 1) != 1 or arguments.get("beta", 1) != 1:
        return None
    x, weight, bias = _operands(node, arguments)
    if weight is None or not isinstance(x, torch.fx.Node) or len(shape_of(x)) < 2:
        return None
    if dtype_of(x) not in int8_weight.DTYPES or dtype_of(node) != dtype_of(x):
        return None

    def call(op: Any, *args: Any) -> torch.fx.Node:
        return rewriter.call(op, args, node)

    matrix = call(aten.t.default, weight.matrix) if weight.transposed else weight.matrix
    n, scale = shape_of(matrix)[0], weight.scale
    if bias is not None and not _is_vector(bias, n):
        return None
    if scale is not None:
        scale = call(aten.reshape.default, scale, [-1])
        if shape_of(scale)[0] != n:
            scale = call(aten.expand.default, scale, [n])
    return call(int8_weight.OPERATOR, x, matrix, scale, bias, 0)


def _replace(rewriter: Rewriter, node: torch.fx.Node, by: torch.fx.Node) -> None:
    """Replaces a product, and what its only reader multiplies or adds per column, as torchao scales its products."""
    x, matrix, scale, bias, activation = by.args
    last, dtype = node, dtype_of(node)
    count = shape_of(as_node(matrix))[0]
    if scale is None and bias is None:
        last, scale = _behind(last, aten.mul.Tensor, count, dtype)
    if bias is None:
        last, bias = _behind(last, aten.add.Tensor, count, dtype)
    if last is not node:
        # What is read may be computed behind the product.
        by = rewriter.call(by.target, (x, matrix, scale, bias, activation), last)
    rewriter.replace(last, by)


def _behind(
    node: torch.fx.Node, operator: Any, count: int, dtype: torch.dtype
) -> tuple[torch.fx.Node, torch.fx.Node | None]:
    """The only reader of a product, if it is the operator with a vector of one number per column, and the vector."""
    (reader, *others) = node.users or (None,)
    if others or reader is None or reader.target is not operator or dtype_of(reader) != dtype:
        return node, None
    arguments = bound_arguments(reader)
    if arguments.get("alpha", 1) != 1:
        return node, None
    a, b = arguments["self"], arguments["other"]
    vector = b if a is node else a
    if not _is_vector(vector, count) or not dtype_of(vector).is_floating_point or shape_of(reader) != shape_of(node):
        return node, None
    return reader, vector


def _operands(node: torch.fx.Node, arguments: dict[str, Any]) -> tuple[Any, _Weight | None, Any]:
    if node.target is aten._weight_int8pack_mm.default:
        return arguments["self"], _Weight(arguments["mat2"], False, arguments["scales"]), None
    if node.target is aten.linear.default:
        return arguments["input"], _dequantized(arguments["weight"], False), arguments["bias"]
    if node.target is aten.addmm.default:
        return arguments["mat1"], _dequantized(arguments["mat2"], True), arguments["self"]
    return (
        arguments["self"],
        _dequantized(arguments["other" if node.target is aten.matmul.default else "mat2"], True),
        None,
    )


def _dequantized(node: Any, transposed: bool) -> _Weight | None:
    """What a matrix, [n, k] or transposed, is made of, if that is int8 numbers with one factor for each of the n."""
    scale = None
    followed = (*_TRANSPOSITIONS, *_CASTS, aten.mul.Tensor)
    while isinstance(node, torch.fx.Node) and node.target in followed and len(shape_of(node)) == 2:
        arguments = bound_arguments(node)
        if node.target in _TRANSPOSITIONS:
            source = arguments["self"]
            if len(shape_of(source)) != 2 or not _swaps(node, arguments):
                return None
            node, transposed = source, not transposed
        elif node.target is aten.mul.Tensor:
            if scale is not None:
                return None
            node, scale = _factor(node, arguments, transposed)
        else:
            source = arguments["self"]
            if dtype_of(node) not in _FLOATING:
                return None
            if dtype_of(source) == torch.int8:
                static = all(isinstance(size, int) for size in shape_of(source))
                return _Weight(source, transposed, scale) if static else None
            # A conversion of floating numbers, which rounds.
            if dtype_of(source) not in _FLOATING:
                return None
            node = source
    return None


def _swaps(node: torch.fx.Node, arguments: dict[str, Any]) -> bool:
    if node.target is aten.t.default:
        return True
    dims = arguments["dims"] if node.target is aten.permute.default else (arguments["dim0"], arguments["dim1"])
    first, second = (dim % 2 for dim in dims)
    return (first, second) == (1, 0) if node.target is aten.permute.default else first != second


def _factor(node: torch.fx.Node, arguments: dict[str, Any], transposed: bool) -> tuple[Any, Any]:
    """The matrix, and the factor of each row of n, of a product of both; None where it is another product."""
    a, b = arguments["self"], arguments["other"]
    if not isinstance(a, torch.fx.Node) or not isinstance(b, torch.fx.Node):
        return None, None
    shape = tuple(shape_of(node))
    for matrix, scale in ((a, b), (b, a)):
        sizes = tuple(shape_of(scale))
        sizes = (1,) * (2 - len(sizes)) + sizes
        n = shape[1] if transposed else shape[0]
        wanted = (1, n) if transposed else (n, 1)
        if tuple(shape_of(matrix)) == shape and sizes in (wanted, (1, 1)) and dtype_of(scale).is_floating_point:
            return matrix, scale
    return None, None


def _is_vector(value: Any, count: Any) -> bool:
    return isinstance(value, torch.fx.Node) and tuple(shape_of(value)) == (count,) and is_contiguous(value.meta["val"])
