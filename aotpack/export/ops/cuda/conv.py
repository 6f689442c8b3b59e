"""`aotpack::cuda_conv`: convolutions with a bias and an activation, by kernels of this project."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op

from aotpack.export.ops.activations import BY_NUMBER
from aotpack.export.ops.cuda import gemm
from aotpack.export.ops.cuda.block_sizes import product_block
from aotpack.export.ops.cuda.conv_kernel import conv_kernel, depthwise_kernel
from aotpack.export.ops.cuda.conv_rule import choose
from aotpack.export.ops.cuda.gpu import input_precision, limits, uses_tf32
from aotpack.export.ops.cuda.launch import Launch, Launcher, launch
from aotpack.export.symbolic_shapes.hints import size_hint
from aotpack.export.torch_compat.operators import OpOverload

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Those of `ops.ACTIVATIONS` that the kernels have.
ACTIVATIONS = frozenset(range(7))
_LARGEST_TILE = 256
# Channels of a group from which it pays to have them innermost.
_FEWEST_IN_PLACE = 8
# Of a transposed convolution's places, of which each reads taps of its own.
_MOST_PHASES = 64


@triton_op("aotpack::cuda_conv", mutates_args={})
def cuda_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    activation: int,
    residual: Tensor | None = None,
) -> Tensor:
    """activation(convolution(x, weight) + bias + residual), as `aten::convolution` has it.

    Args:
        x: [batch, channels, ...] with one to three spatial dims, of any strides.
        weight: [channels out, channels / groups, ...]; transposed [channels, channels out / groups, ...].
        bias: [channels out], contiguous.
        stride, padding, dilation, transposed, output_padding, groups: of the convolution, a number for each dim.
        activation: a number of `ops.ACTIVATIONS`.
        residual: of the shape and dtype of the result, of any strides.

    Returns:
        [batch, channels out, ...], whose channels are innermost in memory. Sums are of single precision, of double
        precision for double.
    """
    parameters = (stride, padding, dilation, transposed, output_padding, groups, activation)
    return convolve(x, weight, bias, *parameters, launch, residual)


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    activation: int,
    launcher: Launcher,
    residual: Tensor | None = None,
) -> Tensor:
    """`cuda_conv`, with the function that launches kernels."""
    spatial = x.dim() - 2
    if residual is not None:
        # In the order in which kernels write the result.
        residual = residual.movedim(1, -1).contiguous()
    if groups == 1 and not transposed and {*weight.shape[2:], *stride} == {1} and {*padding} == {0}:
        # A product of the channels of each place.
        y = gemm.product(x.movedim(1, -1), weight.flatten(1).t(), bias, 1.0, activation, launcher, residual)
        return y.movedim(-1, 1)
    x = innermost(x, x.shape[1] // groups)
    # Dims of size 1 come first where there are fewer than three.
    x, weight = (with_dims(t, spatial) for t in (x, weight))
    steps, pads, dilations = (
        (*(other,) * (3 - spatial), *values) for values, other in ((stride, 1), (padding, 0), (dilation, 1))
    )
    kernel = tuple(weight.shape[2:])
    more = (*(0,) * (3 - spatial), *output_padding)
    if transposed:
        sizes = [
            (n - 1) * s - 2 * p + d * (k - 1) + o + 1
            for n, s, p, d, k, o in zip(x.shape[2:], steps, pads, dilations, kernel, more, strict=True)
        ]
    else:
        sizes = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, s, p, d, k in zip(x.shape[2:], steps, pads, dilations, kernel, strict=True)
        ]
    channels = x.shape[1] // groups
    channels_out = weight.shape[1] if transposed else weight.shape[0] // groups
    places: Any = x.shape[0] * math.prod(sizes)
    shared = {
        "x": x,
        "weight": weight,
        "PLACES": places,
        # It is not read where there is none.
        "bias": x if bias is None else bias,
        **dict(zip(("DEPTH", "HEIGHT", "WIDTH"), x.shape[2:], strict=True)),
        **dict(zip(("DEPTH_OUT", "HEIGHT_OUT", "WIDTH_OUT"), sizes, strict=True)),
        **dict(zip(("stride_xn", "stride_xc", "stride_xd", "stride_xh", "stride_xw"), x.stride(), strict=True)),
        **dict(zip(("stride_wd", "stride_wh", "stride_ww"), weight.stride()[2:], strict=True)),
        **three_dims("KERNEL", kernel, 1),
        **three_dims("STEP", stride, 1),
        **three_dims("PAD", padding, 0),
        **three_dims("DILATION", dilation, 1),
        "TRANSPOSED": transposed,
        "DOUBLE": x.dtype == torch.float64,
    }
    finish = {"HAS_BIAS": bias is not None, "ACTIVATION": activation}
    if channels == 1 and groups > 1:
        if residual is not None:
            finish["ACTIVATION"] = 0
        y = _depthwise(shared | finish, (x.shape[0], *sizes, groups * channels_out), channels_out, transposed, launcher)
        if residual is not None:
            y = BY_NUMBER[activation](y + residual.view(y.shape))
    else:
        shape = (x.shape[0], *sizes, groups, channels_out)
        y = _product(shared, finish, shape, channels, transposed, launcher, residual)
    return y.flatten(4).permute(0, 4, 1, 2, 3).view(x.shape[0], groups * channels_out, *sizes[3 - spatial :])


def innermost(x: Tensor, channels: int) -> Tensor:
    """`x` with its channels innermost in memory, if that pays with so many channels that are read together."""
    step = x.stride(1)
    if channels >= _FEWEST_IN_PLACE and not (isinstance(step, int) and step == 1):
        # A tap reads neighbouring channels at once.
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    return x


def is_small(x: Tensor, places: Any) -> bool:
    """Whether 32 bits hold every offset in a tensor, also those of padding around it, and the number of places."""
    if not all(isinstance(size, int) for size in (*x.shape, *x.stride(), places)):
        return False
    span = sum(size * step for size, step in zip(x.shape, x.stride(), strict=True))
    return bool(max(2 * span, places + _LARGEST_TILE) < 1 << 31)


def with_dims(tensor: Tensor, spatial: int) -> Tensor:
    """`tensor` with three spatial dims in place of `spatial`, of which the first have size 1."""
    for _ in range(3 - spatial):
        tensor = tensor.unsqueeze(2)
    return tensor


def three_dims(name: str, values: Sequence[int], other: int) -> dict[str, int]:
    """Arguments of a kernel for each of three dims, of which the first are `other` where there are fewer values."""
    return {f"{name}_{dim}": value for dim, value in zip("DHW", (other,) * (3 - len(values)) + (*values,), strict=True)}


def _depthwise(
    arguments: dict[str, Any], shape: tuple[Any, ...], each: int, transposed: bool, launcher: Launcher
) -> Tensor:
    x, weight = arguments["x"], arguments["weight"]
    channels_out = shape[-1]
    block_n = product_block(channels_out, 64)
    block_m = 32
    if transposed:
        # [channels, each, ...] → a row for each channel of the result.
        weight = weight.flatten(0, 1).unsqueeze(1)
    strides = dict(zip(("stride_wd", "stride_wh", "stride_ww"), weight.stride()[2:], strict=True))
    tiles = (arguments["PLACES"] + block_m - 1) // block_m * ((channels_out + block_n - 1) // block_n)
    own = {
        "weight": weight,
        "out": x.new_empty(shape),
        "CHANNELS_OUT": channels_out,
        "stride_wo": weight.stride(0),
        "EACH": each,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "num_warps": 4,
    }
    return launcher(Launch(depthwise_kernel, (tiles,), arguments | strides | own))


def _product(
    shared: dict[str, Any],
    finish: dict[str, Any],
    shape: tuple[Any, ...],
    channels: int,
    transposed: bool,
    launcher: Launcher,
    residual: Tensor | None,
) -> Tensor:
    x, weight, bias = shared["x"], shared["weight"], shared["bias"]
    *_, groups, channels_out = shape
    multiprocessors, shared_bytes = limits()
    steps = [shared[f"STEP_{dim}"] for dim in "DHW"]
    phases = math.prod(steps) if transposed else 1
    phased = 1 < phases <= _MOST_PHASES
    if not phased:
        phases = 1
    places: Any = shared["PLACES"]
    if phased:
        places = shape[0] * math.prod((size + step - 1) // step for size, step in zip(shape[1:4], steps, strict=True))
    tile, splits = choose(
        groups * phases,
        max(1, size_hint(places)),
        channels_out,
        -(-math.prod(weight.shape[2:]) // phases),
        channels,
        x.dtype,
        multiprocessors=multiprocessors,
        shared_bytes=shared_bytes,
        tf32=uses_tf32(x.dtype),
        residual=residual is not None,
    )
    first, second = weight.stride()[:2]
    precise = torch.float64 if x.dtype == torch.float64 else torch.float32
    parts = x.new_empty((splits, *shape), dtype=x.dtype if splits == 1 else precise)
    tiles = (places + tile.m - 1) // tile.m * ((channels_out + tile.n - 1) // tile.n)
    own = {
        "out": parts,
        "PLACES": places,
        "ALL_PLACES": shared["PLACES"],
        "PHASED": phased,
        **{
            f"PERIOD_{dim}": step // math.gcd(step, shared[f"DILATION_{dim}"]) if phased else 1
            for dim, step in zip("DHW", steps, strict=True)
        },
        "CHANNELS_OUT": channels_out,
        "CHANNELS": channels,
        "SPLITS": splits,
        "SMALL": is_small(x, shared["PLACES"]),
        "stride_wg": first * (channels if transposed else channels_out),
        "stride_wo": second if transposed else first,
        "stride_wc": first if transposed else second,
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
        "PRECISION": input_precision(x.dtype),
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
    grid = (tiles, groups * phases, splits)
    if splits == 1:
        added = {"residual": x if residual is None else residual, "HAS_RESIDUAL": residual is not None}
        return launcher(Launch(conv_kernel, grid, shared | finish | added | own)).squeeze(0)
    without = {"HAS_BIAS": False, "residual": x, "HAS_RESIDUAL": False, "ACTIVATION": 0}
    total = launcher(Launch(conv_kernel, grid, shared | without | own)).sum(0)
    if finish["HAS_BIAS"]:
        total = total + bias.view(groups, channels_out)
    if residual is not None:
        total = total + residual.view(shape)
    return BY_NUMBER[finish["ACTIVATION"]](total).to(x.dtype)


OPERATOR: OpOverload = torch.ops.aotpack.cuda_conv.default
