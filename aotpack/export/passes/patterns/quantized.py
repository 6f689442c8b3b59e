"""Quantized values around a product, as `quantize` and `dequantize` state them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export import ops
from aotpack.export.ir.rewriter import Rewriter, as_node, bound_arguments, dtype_of, same_shape, shape_of

aten = torch.ops.aten

# Move elements, and compute none.
_MOVES = (
    aten.reshape.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.flatten.using_ints,
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.clone.default,
    aten.contiguous.default,
)


@dataclass(frozen=True)
class Scale:
    """A constant scale of a whole tensor with its zero point, if it has one, and the dtype of the numbers."""

    scale: torch.fx.Node
    zero: torch.fx.Node | None
    dtype: torch.dtype


@dataclass(frozen=True)
class Activation:
    """8-bit numbers and their scale, behind `moves` of the numbers that they stand for, the last one first."""

    numbers: torch.fx.Node
    scale: Scale
    moves: tuple[torch.fx.Node, ...] = ()

    def moved(self, rewriter: Rewriter, before: torch.fx.Node) -> torch.fx.Node:
        """The numbers after the same moves."""
        node = self.numbers
        for move in reversed(self.moves):
            target: Any = move.target
            node = rewriter.call(target, (node, *move.args[1:]), before, **move.kwargs)
        return node


@dataclass(frozen=True)
class Weight:
    """Constant 8-bit numbers with a constant scale and zero point of all or of each output channel, behind `moves`."""

    numbers: torch.fx.Node
    scale: torch.fx.Node
    zero: torch.fx.Node | None
    moves: tuple[tuple[Callable[..., torch.Tensor], tuple[Any, ...]], ...]
    axis: int | None


@dataclass(frozen=True)
class Limits:
    """What a chain of relu and clamp does: limits, None for none."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Rest:
    """What comes after a product.

    Attributes:
        last: the node whose result the kernel makes.
        bias: a constant that is added first.
        limits: before the sum with a residual if there is one.
        middle: how the product is quantized before that sum; None where it is not.
        kept: how it is dequantized again.
        residual: what is added.
        limits_after: after that sum.
        result: how the end is quantized; None for floats.
    """

    last: torch.fx.Node
    bias: torch.fx.Node | None = None
    limits: Limits = Limits()
    middle: Scale | None = None
    kept: Scale | None = None
    residual: Activation | None = None
    limits_after: Limits = Limits()
    result: Scale | None = None


def _is_byte(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and dtype_of(node) in (torch.uint8, torch.int8)


def scale_of(rewriter: Rewriter, node: torch.fx.Node) -> Scale | None:
    """Of a `quantize` or `dequantize` with one constant scale for all."""
    arguments = bound_arguments(node)
    scale, zero = arguments["scale"], arguments["zero"]
    for constant in (scale, zero):
        if constant is not None and (rewriter.constant(constant) is None or not _single(constant)):
            return None
    return Scale(scale, zero, dtype_of(node if node.target is ops.quantize else arguments["x"]))


def _single(node: torch.fx.Node) -> bool:
    return all(isinstance(size, int) and size == 1 for size in shape_of(node))


def activation(rewriter: Rewriter, node: Any, *, moves: bool = True) -> Activation | None:
    """What a value was dequantized from."""
    found = []
    while moves and isinstance(node, torch.fx.Node) and node.target in _MOVES:
        found.append(node)
        node = node.args[0]
    if not isinstance(node, torch.fx.Node) or node.target is not ops.dequantize:
        return None
    numbers, scale = node.args[0], scale_of(rewriter, node)
    return Activation(as_node(numbers), scale, tuple(found)) if scale is not None and _is_byte(numbers) else None


def weight(rewriter: Rewriter, node: Any) -> Weight | None:
    """The constant that a weight was dequantized from, with the axis of its scale, None for one scale."""
    moves: list[tuple[Callable[..., torch.Tensor], tuple[Any, ...]]] = []
    while isinstance(node, torch.fx.Node) and node.target in _MOVES:
        target: Any = node.target
        if node.kwargs or any(isinstance(argument, torch.fx.Node) for argument in node.args[1:]):
            return None
        moves.append((target, tuple(node.args[1:])))
        node = node.args[0]
    if not isinstance(node, torch.fx.Node) or node.target is not ops.dequantize:
        return None
    numbers, scale, zero = (bound_arguments(node)[name] for name in ("x", "scale", "zero"))
    if not _is_byte(numbers) or any(rewriter.constant(n) is None for n in (numbers, scale, zero) if n is not None):
        return None
    sizes = torch.broadcast_shapes(shape_of(scale), () if zero is None else shape_of(zero))
    rank = len(shape_of(numbers))
    axes = [axis + rank - len(sizes) for axis, size in enumerate(sizes) if size != 1]
    moves.reverse()
    if len(axes) > 1 or (axes and moves and not (rank == 2 and all(move in _TRANSPOSITIONS for move, _ in moves))):
        return None
    axis = axes[0] if axes else None
    if axis is not None and moves:
        trial = torch.empty(2, 3, device="meta")
        for move, arguments in moves:
            trial = move(trial, *arguments)
        axis = axis if trial.shape[0] == 2 else 1 - axis
    return Weight(numbers, scale, zero, tuple(moves), axis)


_TRANSPOSITIONS = (aten.t.default, aten.transpose.int, aten.permute.default)


def rest(rewriter: Rewriter, node: torch.fx.Node, channels: int, *, bias: bool) -> Rest:
    """What is done with a product, as far as the kernels do it.

    Args:
        rewriter: of the graph.
        node: the product.
        channels: of its result, in the last dim if there may be a bias.
        bias: whether a constant that is added to it may be its bias.
    """
    found = Rest(node)
    if (
        bias
        and (user := _only_user(node)) is not None
        and user.target is aten.add.Tensor
        and "alpha" not in user.kwargs
    ):
        other = user.args[1] if user.args[0] is node else user.args[0]
        constant = rewriter.constant(other)
        if constant is not None and tuple(constant.shape) == (channels,) and constant.dtype == torch.float32:
            found = Rest(user, bias=as_node(other))
    last, limits = _limited(found.last)
    found = Rest(last, found.bias, limits)
    added = _added(rewriter, found)
    if added is not None:
        return added
    user = _only_user(last)
    if user is not None and user.target is ops.quantize:
        scale = scale_of(rewriter, user)
        if scale is not None and _is_byte(user):
            with_bytes = Rest(user, found.bias, limits, result=scale)
            return _added(rewriter, with_bytes) or with_bytes
    return found


def _only_user(node: torch.fx.Node) -> torch.fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _limited(node: torch.fx.Node) -> tuple[torch.fx.Node, Limits]:
    """The end of the relus and clamps that follow a value, and the limits that they are together."""
    low: float | None = None
    high: float | None = None
    while (user := _only_user(node)) is not None and (limits := _limits(user)) is not None:
        # A later limit goes over an earlier one.
        if limits.low is not None:
            low = limits.low if low is None else max(low, limits.low)
            high = None if high is None else max(high, limits.low)
        if limits.high is not None:
            high = limits.high if high is None else min(high, limits.high)
            low = None if low is None else min(low, limits.high)
        node = user
    return node, Limits(low, high)


def _limits(node: torch.fx.Node) -> Limits | None:
    if node.target is aten.relu.default:
        return Limits(0.0)
    if node.target is aten.relu6.default:
        return Limits(0.0, 6.0)
    if node.target in (aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default, aten.hardtanh.default):
        arguments = bound_arguments(node)
        low = arguments.get("min", arguments.get("min_val"))
        high = arguments.get("max", arguments.get("max_val"))
        if all(bound is None or isinstance(bound, (int, float)) for bound in (low, high)):
            if low is not None and high is not None and low > high:
                return None
            return Limits(None if low is None else float(low), None if high is None else float(high))
    return None


def _added(rewriter: Rewriter, found: Rest) -> Rest | None:
    """With the sum of the product, quantized or not, and another quantized value."""
    last, kept = found.last, None
    if found.result is not None:
        user = _only_user(last)
        if user is None or user.target is not ops.dequantize or (kept := scale_of(rewriter, user)) is None:
            return None
        last = user
    add = _only_user(last)
    if add is None or add.target is not aten.add.Tensor or add.kwargs or len(add.args) != 2:
        return None
    other = add.args[1] if add.args[0] is last else add.args[0]
    residual = activation(rewriter, other, moves=False)
    if residual is None or not same_shape(as_node(other), last):
        return None
    end, limits = _limited(add)
    result = None
    quantize = _only_user(end)
    if quantize is not None and quantize.target is ops.quantize and _is_byte(quantize):
        result = scale_of(rewriter, quantize)
        end = quantize if result is not None else end
    return Rest(end, found.bias, found.limits, found.result, kept, residual, limits, result)
