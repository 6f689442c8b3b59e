"""Uses the kernels of int8 for products of quantized activations by quantized constant weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, shape_of
from aotpack.export.ops.int8 import RESULTS
from aotpack.export.ops.int8_packing import Runs
from aotpack.export.passes.patterns import quantized
from aotpack.export.passes.patterns.convolutions import convolution, unpadded
from aotpack.export.passes.patterns.int8_constants import Int8Product, Recipe
from aotpack.export.passes.patterns.producers import CONVOLUTIONS
from aotpack.export.passes.patterns.products import PRODUCTS

aten = torch.ops.aten

# Sums are of int32: so many products of two bytes fit.
_DEEPEST = (1 << 31) // (255 * 128) // 2


@dataclass(frozen=True)
class _Operands:
    """A product of dequantized operands; `geometry` is what the operator has between residual and result."""

    x: torch.fx.Node
    scale: quantized.Scale
    weight: quantized.Weight
    bias: torch.fx.Node | None
    runs: Runs
    operator: Any
    geometry: tuple[Any, ...]


def use_int8(program: Program) -> Program:
    """Replaces dequantized convolutions and linears, with what follows up to the next quantization, by int8 kernels."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(*CONVOLUTIONS, *PRODUCTS):
        operands = _convolution(rewriter, node) if node.target in CONVOLUTIONS else _linear(rewriter, node)
        if operands is None:
            continue
        channels = operands.runs.groups * operands.runs.outputs
        may_add = operands.bias is None and node.target not in CONVOLUTIONS
        rest = quantized.rest(rewriter, node, channels, bias=may_add)
        residual = None if rest.residual is None else rest.residual.numbers
        weight, by_channel, numbers = _constants(rewriter, operands, rest)
        result = torch.float32 if rest.result is None else rest.result.dtype
        arguments = (operands.x, weight, by_channel, numbers, residual, *operands.geometry, RESULTS.index(result))
        made = rewriter.call(operands.operator, arguments, rest.last)
        rewriter.report(node, f"int8 with the weight {list(shape_of(operands.weight.numbers))}")
        rewriter.replace(rest.last, made)
        # What is left of the chain would count as readers.
        rewriter.remove_dead_code()
    return rewriter.finish("use-int8", f"{rewriter.changed} products are of int8")


def _convolution(rewriter: Rewriter, node: torch.fx.Node) -> _Operands | None:
    arguments = bound_arguments(node)
    weight = quantized.weight(rewriter, arguments["weight"])
    if (
        weight is None
        or weight.moves
        or weight.axis not in (None, 0)
        or not _float_or_none(rewriter, arguments["bias"])
    ):
        return None
    conv = convolution(rewriter, node)
    if conv is None or conv.transposed or not conv.batched:
        return None
    x, before, after = unpadded(conv.x, conv.padding)
    source = quantized.activation(rewriter, x)
    if source is None or math.prod(shape_of(weight.numbers)[1:]) > _DEEPEST:
        return None
    runs = Runs.of(shape_of(conv.weight)[1] * conv.groups, conv.out_channels, conv.groups, conv.kernel, conv.dilation)
    geometry = (conv.out_channels, conv.kernel, conv.stride, before + after, conv.dilation, conv.groups)
    numbers = source.moved(rewriter, node)
    return _Operands(numbers, source.scale, weight, conv.bias, runs, ops.int8_conv, geometry)


def _linear(rewriter: Rewriter, node: torch.fx.Node) -> _Operands | None:
    arguments = bound_arguments(node)
    bias = None
    rows = node.target is aten.linear.default
    if rows:
        x, matrix, bias = arguments["input"], arguments["weight"], arguments["bias"]
    elif node.target is aten.addmm.default:
        x, matrix, bias = arguments["mat1"], arguments["mat2"], arguments["self"]
        if arguments["alpha"] != 1 or arguments["beta"] != 1:
            return None
    else:
        x, matrix = arguments["self"], arguments["mat2" if node.target is aten.mm.default else "other"]
    weight = quantized.weight(rewriter, matrix)
    if weight is None or len(shape_of(matrix)) != 2 or not _float_or_none(rewriter, bias):
        return None
    if len(shape_of(x)) < 1 or len(shape_of(x)) != len(shape_of(node)):
        return None
    outputs, depth = shape_of(matrix) if rows else reversed(shape_of(matrix))
    if bias is not None and tuple(shape_of(bias)) != (outputs,):
        return None
    source = quantized.activation(rewriter, x)
    if source is None or weight.axis not in (None, 0 if rows else 1) or depth > _DEEPEST:
        return None
    if not rows:
        weight = quantized.Weight(
            weight.numbers, weight.scale, weight.zero, (*weight.moves, (aten.t.default, ())), weight.axis
        )
    runs = Runs.of(depth, outputs, 1, [1], [1])
    numbers = source.moved(rewriter, node)
    return _Operands(numbers, source.scale, weight, bias, runs, ops.int8_linear, (outputs,))


def _float_or_none(rewriter: Rewriter, bias: Any) -> bool:
    return bias is None or (rewriter.constant(bias) is not None and dtype_of(bias) == torch.float32)


def _constants(rewriter: Rewriter, operands: _Operands, rest: quantized.Rest) -> tuple[torch.fx.Node, ...]:
    """The packed weight, what there is by channel, and the numbers of the whole."""

    product = Int8Product(
        runs=operands.runs,
        moves=operands.weight.moves,
        signed=dtype_of(operands.x) == torch.int8,
        middle=None if rest.middle is None else rest.middle.dtype,
        residual=None if rest.residual is None else rest.residual.scale.dtype,
        result=None if rest.result is None else rest.result.dtype,
        limits=(rest.limits.low, rest.limits.high),
        limits_after=(rest.limits_after.low, rest.limits_after.high),
    )
    bias = rest.bias if rest.bias is not None else operands.bias
    named: dict[str, torch.fx.Node | None] = {
        "weight": operands.weight.numbers,
        "weight_scale": operands.weight.scale,
        "weight_zero": operands.weight.zero,
        "x_scale": operands.scale.scale,
        "x_zero": operands.scale.zero,
        "bias": bias,
    }
    residual = None if rest.residual is None else rest.residual.scale
    scales = {"middle": rest.middle, "kept": rest.kept, "residual": residual, "result": rest.result}
    for name, scale in scales.items():
        if scale is not None:
            named |= {f"{name}_scale": scale.scale, f"{name}_zero": scale.zero}
    given = {name: node for name, node in named.items() if node is not None}

    first = next(iter(rewriter.graph.nodes))

    def made(which: str, names: tuple[str, ...]) -> torch.fx.Node:
        present = tuple(name for name in names if name in given)
        recipe = Recipe(product, which, present)
        name = f"{which}_{given['weight'].target}"
        return rewriter.derive(name, "packed", recipe, [given[n] for n in present], first, exact=False)

    everything = tuple(given)
    return (
        made("packed", ("weight", "weight_zero")),
        made("channels", everything),
        made("numbers", everything),
    )
