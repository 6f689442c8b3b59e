"""Our packed operators, `torch.ops.aotpack.*`: what passes put into a graph and kernels of ours compute.

Each has a reference implementation over plain torch operators, so that a graph with them can be run and compared, and a
fake implementation that states sizes and strides of the result. `C_SHIMS` says which C function generated code calls
(csrc/module/ops.h has their declarations).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export import packing
from aotpack.export.packing import unpack_conv, unpack_linear

# Numbers of csrc/kernels/types.h.
ACTIVATIONS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "none": (0, lambda x: x),
    "relu": (1, F.relu),
    "gelu": (2, F.gelu),
    "gelu_tanh": (3, functools.partial(F.gelu, approximate="tanh")),
    "silu": (4, F.silu),
    "sigmoid": (5, torch.sigmoid),
    "tanh": (6, torch.tanh),
    "hardswish": (7, F.hardswish),
    "relu6": (8, F.relu6),
    "hardsigmoid": (9, F.hardsigmoid),
}
_BY_NUMBER = dict(ACTIVATIONS.values())

_library = torch.library.Library("aotpack", "DEF")
# Kernels read any strides, so Inductor need not copy inputs into those of the trace.
_TAGS = (torch.Tag.flexible_layout, torch.Tag.pt2_compliant_tag)

_library.define(
    "packed_linear(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, SymInt out_features, int act) -> Tensor",
    tags=_TAGS,
)
# Weights that are packed while a module runs: those that an update replaces, or that the model computes.
_library.define("pack_linear(Tensor weight) -> Tensor", tags=_TAGS)
_library.define("pack_conv(Tensor weight, int groups, bool transposed) -> Tensor", tags=_TAGS)
_library.define(
    "packed_embedding(Tensor weight, Tensor indices, int rows) -> Tensor",
    tags=_TAGS,
)
_library.define(
    "packed_conv(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int out_channels, int[] kernel, "
    "int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups, int act) "
    "-> Tensor",
    tags=_TAGS,
)
_library.define(
    "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, int mode, Tensor? per_sample_weights, "
    "bool include_last_offset, int padding_idx) -> Tensor",
    tags=_TAGS,
)
_library.define("to_layout(Tensor x, int[] order) -> Tensor", tags=_TAGS)
_library.define(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool is_causal, float scale) -> Tensor", tags=_TAGS
)
_library.define(
    "lstm_layer(Tensor x, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor h0, Tensor c0, int hidden, "
    "bool reverse) -> (Tensor, Tensor, Tensor)",
    tags=_TAGS,
)
_library.define(
    "gru_layer(Tensor x, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor h0, int hidden, "
    "bool reverse) -> (Tensor, Tensor)",
    tags=_TAGS,
)


def _implement(name: str, reference: Callable[..., object], fake: Callable[..., object]) -> None:
    _library.impl(name, reference, "CompositeExplicitAutograd")
    torch.library.register_fake(f"aotpack::{name}", fake, lib=_library)


def _unaliased(result: Tensor, source: Tensor) -> Tensor:
    """An operator's result must not share memory with its arguments; torch's views may."""
    shared = result.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()
    return result.clone() if shared else result


def _pack_linear(weight: Tensor) -> Tensor:
    return _unaliased(packing.pack_linear(weight), weight)


def _pack_linear_fake(weight: Tensor) -> Tensor:
    return weight.new_empty(packing.packed_linear_sizes(weight))


def _pack_conv(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    return _unaliased(packing.pack_conv(weight, groups, transposed), weight)


def _pack_conv_fake(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    return weight.new_empty(packing.packed_conv_sizes(weight, groups, transposed))


def _linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, out_features: int, act: int
) -> Tensor:
    y = F.linear(x, unpack_linear(weight, out_features), bias)
    return _BY_NUMBER[act](y if residual is None else y + residual)


def _linear_fake(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, out_features: int, act: int
) -> Tensor:
    return x.new_empty((*x.shape[:-1], out_features))


def _embedding(weight: Tensor, indices: Tensor, rows: int) -> Tensor:
    return F.embedding(indices, unpack_linear(weight, rows))


def _embedding_fake(weight: Tensor, indices: Tensor, rows: int) -> Tensor:
    return weight.new_empty((*indices.shape, weight.shape[1]))


def channels_last_strides(sizes: Sequence[int | torch.SymInt]) -> list[int | torch.SymInt]:
    """Strides of a dense [n, c, *spatial] tensor that lies as [n, *spatial, c]."""
    return dense_strides(sizes, (0, *range(2, len(sizes)), 1))


def conv_sizes(
    x: Tensor,
    out_channels: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
) -> list[int | torch.SymInt]:
    """The result's sizes; torch.nn.Conv2d and ConvTranspose2d state the formulas."""
    sizes: list[int | torch.SymInt] = [x.shape[0], out_channels]
    for d, size in enumerate(x.shape[2:]):
        reach = dilation[d] * (kernel[d] - 1) + 1
        if transposed:
            sizes.append((size - 1) * stride[d] - 2 * padding[d] + reach + output_padding[d])
        else:
            sizes.append((size + 2 * padding[d] - reach) // stride[d] + 1)
    return sizes


def _conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    out_channels: int,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    act: int,
) -> Tensor:
    dense = unpack_conv(weight, out_channels, groups, kernel, transposed)
    y = torch.convolution(x, dense, bias, stride, padding, dilation, transposed, output_padding, groups)
    y = _BY_NUMBER[act](y if residual is None else y + residual)
    return torch.empty_strided(y.shape, channels_last_strides(y.shape), dtype=y.dtype).copy_(y)


def _conv_fake(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    out_channels: int,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    act: int,
) -> Tensor:
    sizes = conv_sizes(x, out_channels, kernel, stride, padding, dilation, transposed, output_padding)
    return x.new_empty_strided(sizes, channels_last_strides(sizes))


def dense_strides(sizes: Sequence[int | torch.SymInt], order: Sequence[int]) -> list[int | torch.SymInt]:
    """Strides of a dense tensor whose dims lie in `order`, from outermost to innermost."""
    strides: list[int | torch.SymInt] = [0] * len(sizes)
    step: int | torch.SymInt = 1
    for d in reversed(order):
        strides[d] = step
        step = step * sizes[d]
    return strides


def _to_layout(x: Tensor, order: list[int]) -> Tensor:
    return torch.empty_strided(x.shape, dense_strides(x.shape, order), dtype=x.dtype).copy_(x)


def _to_layout_fake(x: Tensor, order: list[int]) -> Tensor:
    return x.new_empty_strided(x.shape, dense_strides(x.shape, order))


_BAG_MODES = ("sum", "mean", "max")


def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    mode: int,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Tensor:
    return F.embedding_bag(
        indices,
        weight,
        offsets,
        mode=_BAG_MODES[mode],
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=None if padding_idx < 0 else padding_idx,
    )


def _embedding_bag_fake(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    mode: int,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Tensor:
    return weight.new_empty((offsets.shape[0] - int(include_last_offset), weight.shape[1]))


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    y = F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return y.transpose(1, 2).contiguous().transpose(1, 2)


def _attention_fake(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[3])).transpose(1, 2)


def _lstm(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    hidden: int,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    ih, hh = unpack_linear(w_ih, 4 * hidden), unpack_linear(w_hh, 4 * hidden)
    h, c, steps = h0, c0, []
    for t in reversed(range(x.shape[0])) if reverse else range(x.shape[0]):
        i, f, g, o = (F.linear(x[t], ih, b_ih) + F.linear(h, hh, b_hh)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        steps.append(h)
    y = torch.stack(steps[::-1] if reverse else steps) if steps else x.new_empty((0, x.shape[1], hidden))
    return y, h.clone(), c.clone()


def _lstm_fake(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    hidden: int,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    y = x.new_empty((x.shape[0], x.shape[1], hidden))
    return y, x.new_empty((x.shape[1], hidden)), x.new_empty((x.shape[1], hidden))


def _gru(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    h0: Tensor,
    hidden: int,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    ih, hh = unpack_linear(w_ih, 3 * hidden), unpack_linear(w_hh, 3 * hidden)
    h, steps = h0, []
    for t in reversed(range(x.shape[0])) if reverse else range(x.shape[0]):
        xr, xz, xn = F.linear(x[t], ih, b_ih).chunk(3, dim=-1)
        hr, hz, hn = F.linear(h, hh, b_hh).chunk(3, dim=-1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        n = torch.tanh(xn + r * hn)
        h = (1 - z) * n + z * h
        steps.append(h)
    y = torch.stack(steps[::-1] if reverse else steps) if steps else x.new_empty((0, x.shape[1], hidden))
    return y, h.clone()


def _gru_fake(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    h0: Tensor,
    hidden: int,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    return x.new_empty((x.shape[0], x.shape[1], hidden)), x.new_empty((x.shape[1], hidden))


_implement("packed_linear", _linear, _linear_fake)
_implement("pack_linear", _pack_linear, _pack_linear_fake)
_implement("pack_conv", _pack_conv, _pack_conv_fake)
_implement("packed_embedding", _embedding, _embedding_fake)
_implement("packed_conv", _conv, _conv_fake)
_implement("embedding_bag", _embedding_bag, _embedding_bag_fake)
_implement("to_layout", _to_layout, _to_layout_fake)
_implement("attention", _attention, _attention_fake)
_implement("lstm_layer", _lstm, _lstm_fake)
_implement("gru_layer", _gru, _gru_fake)

packed_linear = torch.ops.aotpack.packed_linear.default
pack_linear = torch.ops.aotpack.pack_linear.default
pack_conv = torch.ops.aotpack.pack_conv.default
packed_embedding = torch.ops.aotpack.packed_embedding.default
packed_conv = torch.ops.aotpack.packed_conv.default
embedding_bag = torch.ops.aotpack.embedding_bag.default
to_layout = torch.ops.aotpack.to_layout.default
attention = torch.ops.aotpack.attention.default
lstm_layer = torch.ops.aotpack.lstm_layer.default
gru_layer = torch.ops.aotpack.gru_layer.default

# Inductor asks for a declaration per operator; ours are in csrc/module/ops.h, so the text is a comment.
C_SHIMS: dict[torch._ops.OpOverload, list[str]] = {
    op: [f"/* aoti_torch_cpu_{op._schema.name.split('::')[1]}: csrc/module/ops.h */"]
    for op in (
        packed_linear,
        pack_linear,
        pack_conv,
        packed_embedding,
        packed_conv,
        embedding_bag,
        to_layout,
        attention,
        lstm_layer,
        gru_layer,
    )
}
