"""`aotpack::cuda_conv_weight_gradient`: gradients of convolutions' weights, by kernels of this project."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op

from aotpack.export.ops.cuda.conv import innermost, is_small, three_dims, with_dims
from aotpack.export.ops.cuda.conv_backward_kernel import depthwise_weight_gradient_kernel, weight_gradient_kernel
from aotpack.export.ops.cuda.conv_backward_rule import choose, choose_depthwise, within
from aotpack.export.ops.cuda.gpu import input_precision, limits
from aotpack.export.ops.cuda.launch import Launch, Launcher, launch
from aotpack.export.symbolic_shapes.hints import size_hint
from aotpack.export.torch_compat.operators import OpOverload
from aotpack.export.torch_compat.symbolic_shapes import statically_known_true


@triton_op("aotpack::cuda_conv_weight_gradient", mutates_args={})
def cuda_conv_weight_gradient(
    rows: Tensor,
    source: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """The sum over images and places of rows[r, place] * source[c, place * stride + tap * dilation - padding].

    It is the gradient of a convolution's weight, where `rows` is the gradient of the result and `source` the input, and
    of a transposed one's, where they change roles.

    Args:
        rows: [batch, channels, ...] with one to three spatial dims, of any strides.
        source: [batch, other channels, ...] of the same dtype, of any strides; 0 where a tap reads outside of it.
        kernel, stride, padding, dilation, groups: of the convolution, a number for each dim.

    Returns:
        [channels, other channels / groups, *kernel], in an order in memory that depends on the kernel. Sums are of
        single precision, of double precision for double, and are the same in every call.
    """
    return weight_gradient(rows, source, kernel, stride, padding, dilation, groups, launch)


def weight_gradient(
    rows: Tensor,
    source: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    launcher: Launcher,
) -> Tensor:
    """`cuda_conv_weight_gradient`, with the function that launches kernels."""
    spatial = rows.dim() - 2
    each, channels = rows.shape[1] // groups, source.shape[1] // groups
    taps = math.prod(kernel)
    # Places are dense: one number counts them.
    dense = rows.movedim(1, -1).contiguous()
    source = innermost(source, source.shape[1])
    flat = taps == 1 and {*stride} == {1} and {*padding} == {0} and _has_dense_places(source)
    sizes: Any = dense.shape[1:-1]
    places: Any = dense.shape[0] * math.prod(sizes)
    source = with_dims(source, spatial)
    more = (1,) * (3 - spatial)
    shared = {
        "rows": dense,
        "source": source,
        "PLACES": places,
        **dict(zip(("DEPTH", "HEIGHT", "WIDTH"), source.shape[2:], strict=True)),
        **dict(zip(("DEPTH_OUT", "HEIGHT_OUT", "WIDTH_OUT"), (*more, *sizes), strict=True)),
        "stride_rp": rows.shape[1],
        **dict(zip(("stride_sn", "stride_sc", "stride_sd", "stride_sh", "stride_sw"), source.stride(), strict=True)),
        **three_dims("KERNEL", kernel, 1),
        **three_dims("STEP", stride, 1),
        **three_dims("PAD", padding, 0),
        **three_dims("DILATION", dilation, 1),
        "DOUBLE": dense.dtype == torch.float64,
        "SMALL": is_small(dense, places) and is_small(source, places),
    }
    if groups > 1 and 1 in (each, channels):
        gradient = _depthwise(shared, groups, each, channels, taps, launcher)
    else:
        gradient = _product(shared | {"FLAT": flat}, groups, each, channels, taps, launcher)
    # [groups, each, taps, channels] → [groups * each, channels, ...]
    result: Tensor = gradient.flatten(0, 1).mT.unflatten(2, list(kernel))
    return result


def _has_dense_places(source: Tensor) -> bool:
    """Whether a step from one place to the next is the same everywhere, also from one image to the next."""
    step = source.stride(-1)
    for axis in (*range(source.dim() - 1, 1, -1), 0):
        if not _equal(source.stride(axis), step):
            return False
        step = step * source.shape[axis]
    return True


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, int) and isinstance(second, int):
        return first == second
    return bool(statically_known_true(first == second))


def _depthwise(shared: dict[str, Any], groups: int, each: int, channels: int, taps: int, launcher: Launcher) -> Tensor:
    count = groups * each * channels
    multiprocessors, _ = limits()
    places = max(1, size_hint(shared["PLACES"]))
    (block_t, block_k, block_n), splits = choose_depthwise(count, taps, places, multiprocessors=multiprocessors)
    parts = _parts(shared, (splits, taps, count))
    own = {
        "out": parts,
        "COUNT": count,
        "ROW_EACH": channels,
        "SOURCE_EACH": each,
        "BLOCK_T": block_t,
        "BLOCK_K": block_k,
        "BLOCK_N": block_n,
        "num_warps": 4,
    }
    tiles = -(-taps // block_t) * -(-count // block_n)
    total = _sum(launcher(Launch(depthwise_weight_gradient_kernel, (tiles, splits), shared | own)), shared)
    result: Tensor = total.t().unflatten(0, (groups, each, channels))
    return result.mT


def _product(shared: dict[str, Any], groups: int, each: int, channels: int, taps: int, launcher: Launcher) -> Tensor:
    rows, places = shared["rows"], shared["PLACES"]
    multiprocessors, shared_bytes = limits()
    tile, splits = choose(
        groups,
        each,
        taps,
        channels,
        max(1, size_hint(places)),
        rows.dtype,
        multiprocessors=multiprocessors,
        shared_bytes=shared_bytes,
    )
    alone = within(taps, channels)
    parts = _parts(shared, (splits, groups, each, taps, channels))
    own = {
        "out": parts,
        "ROWS": each,
        "CHANNELS": channels,
        "WITHIN": alone,
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
        "PRECISION": input_precision(rows.dtype),
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
    tiles_n = taps * -(-channels // tile.n) if alone else -(-taps * channels // tile.n)
    grid = (-(-each // tile.m) * tiles_n, groups, splits)
    return _sum(launcher(Launch(weight_gradient_kernel, grid, shared | own)), shared)


def _parts(shared: dict[str, Any], shape: tuple[int, ...]) -> Tensor:
    """What the kernels write: the gradient itself where sums are not divided, else parts of it."""
    rows: Tensor = shared["rows"]
    precise = torch.float64 if shared["DOUBLE"] else torch.float32
    return rows.new_empty(shape, dtype=rows.dtype if shape[0] == 1 else precise)


def _sum(parts: Tensor, shared: dict[str, Any]) -> Tensor:
    return parts.squeeze(0) if parts.shape[0] == 1 else parts.sum(0).to(shared["rows"].dtype)


OPERATOR: OpOverload = torch.ops.aotpack.cuda_conv_weight_gradient.default
