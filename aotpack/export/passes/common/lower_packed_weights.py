"""Products with weights that torch packed for its own kernels become plain operators."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, shape_of
from aotpack.export.torch_compat.int4_packing import adds_packed_bias, pack, packing_of, unpack

aten = torch.ops.aten

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def lower_packed_weights(program: Program) -> Program:
    """Unpacks 4-bit weights of `_weight_int4pack_mm_for_cpu` and `_dyn_quant_matmul_4bit` and dequantizes them.

    Passes that know dequantized weights then see a linear.
    """
    rewriter = Rewriter(program)
    for target, lower in _LOWERED.items():
        for node in rewriter.nodes(target):
            result = lower(rewriter, node)
            if result is not None:
                rewriter.report(node, f"{target} is arithmetic")
                rewriter.replace(node, result)
    return rewriter.finish("lower-packed-weights", f"{rewriter.changed} operators on packed weights became arithmetic")


def _caller(rewriter: Rewriter, before: torch.fx.Node) -> Any:
    def call(operator: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        return rewriter.call(operator, args, before, **kwargs)

    return call


def _int4pack_mm(rewriter: Rewriter, node: torch.fx.Node) -> torch.fx.Node | None:
    """x @ ((q - 8) * scale + zero).t(); scales and zeros are those of groups along k."""
    x, packed, group, scales_and_zeros = bound_arguments(node).values()
    n, k = shape_of(node)[1], shape_of(x)[1]
    layout = packing_of(n) if isinstance(n, int) and isinstance(k, int) else None
    if layout is None or dtype_of(x) not in _FLOATS:
        return None
    call = _caller(rewriter, node)
    numbers = call(aten.reshape.default, unpack(call, packed, n, k, layout), [n, k // group, group])
    value = call(aten.sub.Scalar, call(aten._to_copy.default, numbers, dtype=torch.float32), 8)
    scale, zero = (_by_row(call, scales_and_zeros, place) for place in (0, 1))
    value = call(aten.add.Tensor, call(aten.mul.Tensor, value, scale), zero)
    matrix = call(aten.reshape.default, value, [n, k])
    if dtype_of(x) != torch.float32:
        matrix = call(aten._to_copy.default, matrix, dtype=dtype_of(x))
    return call(aten.linear.default, x, matrix)  # type: ignore[no-any-return]


def _by_row(call: Any, scales_and_zeros: torch.fx.Node, place: int) -> torch.fx.Node:
    """Scales or zeros [k / group, n, 2] as [n, k / group, 1]."""
    chosen = call(aten.permute.default, call(aten.select.int, scales_and_zeros, 2, place), [1, 0])
    if dtype_of(chosen) != torch.float32:
        chosen = call(aten._to_copy.default, chosen, dtype=torch.float32)
    return call(aten.unsqueeze.default, chosen, -1)  # type: ignore[no-any-return]


def _convert_int4pack(rewriter: Rewriter, node: torch.fx.Node) -> torch.fx.Node | None:
    numbers = bound_arguments(node)["self"]
    n, k = shape_of(numbers)
    layout = packing_of(n) if isinstance(n, int) and isinstance(k, int) else None
    return None if layout is None else pack(_caller(rewriter, node), numbers, n, k, layout)


def _dyn_quant_matmul(rewriter: Rewriter, node: torch.fx.Node) -> torch.fx.Node | None:
    """Rows of x as integers of 8 bits, by weights of 4: (q - 8) * scale.

    The packed weight is float: numbers, two in each, scales of groups along k, and perhaps a bias. On Arm, torch may
    pack for KleidiAI, which is left.
    """
    x, packed, group, k, n = bound_arguments(node).values()
    sizes = (group, k, n, *shape_of(packed))
    if not all(isinstance(size, int) for size in sizes) or dtype_of(x) not in _FLOATS[:2]:
        return None
    bytes_, groups = n * k // 2, k // group
    extra = shape_of(packed).numel() - bytes_ - n * groups
    if dtype_of(packed) != torch.float32 or extra not in (0, n) or k % 2 or groups * group != k:
        return None
    call = _caller(rewriter, node)
    part = functools.partial(call, aten.slice.Tensor, packed, 0)
    pairs = call(aten._to_copy.default, part(0, bytes_), dtype=torch.uint8)
    pairs = call(aten.reshape.default, pairs, [n, k // 2])
    halves = [call(aten.bitwise_and.Scalar, pairs, 15), call(aten.bitwise_right_shift.Tensor_Scalar, pairs, 4)]
    numbers = call(aten.reshape.default, call(aten.stack.default, halves, -1), [n, groups, group])
    value = call(aten.sub.Scalar, call(aten._to_copy.default, numbers, dtype=torch.float32), 8)
    scale = call(aten.reshape.default, part(bytes_, bytes_ + n * groups), [n, groups, 1])
    matrix = call(aten.reshape.default, call(aten.mul.Tensor, value, scale), [n, k])
    whole, step = _by_token(call, x)
    result = call(aten.mul.Tensor, call(aten.linear.default, whole, matrix), step)
    if extra and adds_packed_bias(dtype_of(x), groups > 1):
        result = call(aten.add.Tensor, result, part(bytes_ + n * groups, bytes_ + n * groups + n))
    return call(aten._to_copy.default, result, dtype=dtype_of(node))  # type: ignore[no-any-return]


def _by_token(call: Any, x: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node]:
    """Rows as integers of 8 bits less their zero points, in float, and what a step of each row is."""
    x = call(aten._to_copy.default, x, dtype=torch.float32)
    low = call(aten.clamp.default, call(aten.amin.default, x, [-1], True), None, 0)
    high = call(aten.clamp.default, call(aten.amax.default, x, [-1], True), 0, None)
    extent = call(aten.sub.Tensor, high, low)
    steps = call(aten.div.Tensor, call(aten.full_like.default, extent, 255.0), extent)
    steps = call(aten.where.ScalarOther, call(aten.ne.Scalar, extent, 0), steps, 1.0)
    least, most = call(aten.mul.Tensor, low, steps), call(aten.mul.Tensor, high, steps)
    positive = call(aten.gt.Scalar, call(aten.sub.Scalar, call(aten.add.Tensor, least, most), 1), 0)
    from_least = call(aten.rsub.Scalar, least, -128)
    from_most = call(aten.rsub.Scalar, most, 127)
    zero = call(aten.where.self, positive, from_least, from_most)
    zero = call(aten.round.default, call(aten.clamp.default, zero, -128, 127))
    # Halves go away from zero.
    scaled = call(aten.mul.Tensor, x, steps)
    whole = call(aten.trunc.default, scaled)
    rest = call(aten.sub.Tensor, scaled, whole)
    away = call(aten.trunc.default, call(aten.mul.Scalar, rest, 2))
    whole = call(aten.add.Tensor, call(aten.add.Tensor, whole, away), zero)
    whole = call(aten.sub.Tensor, call(aten.clamp.default, whole, -128, 127), zero)
    return whole, call(aten.reciprocal.default, steps)


def _dyn_quant_pack(rewriter: Rewriter, node: torch.fx.Node) -> torch.fx.Node:
    call = _caller(rewriter, node)
    weights, scales, bias, *_ = bound_arguments(node).values()
    parts = [
        call(aten.reshape.default, call(aten._to_copy.default, part, dtype=torch.float32), [-1])
        for part in (weights, scales, bias)
        if part is not None
    ]
    return call(aten.cat.default, parts)  # type: ignore[no-any-return]


_LOWERED = {
    aten._convert_weight_to_int4pack_for_cpu.default: _convert_int4pack,
    aten._weight_int4pack_mm_for_cpu.default: _int4pack_mm,
    aten._dyn_quant_pack_4bit_weight.default: _dyn_quant_pack,
    aten._dyn_quant_matmul_4bit.default: _dyn_quant_matmul,
}
