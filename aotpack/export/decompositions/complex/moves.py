"""Operators on complex tensors that move elements or make tensors: both parts go the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.complex.numbers import Pair, complex_dtype, joined, nonzero, pair, real_dtype
from aotpack.export.decompositions.complex.registration import by_parts, complex_decomposes, operand
from aotpack.export.decompositions.table import aten, decomposes

prims = torch.ops.prims

# What has no complex argument but tensors whose elements it moves, and no number that becomes an element.
_BY_PARTS = (
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten._reshape_alias.default,
    aten.slice.Tensor, aten.select.int, aten.permute.default, aten.transpose.int, aten.t.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default, aten.expand.default,
    aten.alias.default, aten.detach.default, aten.diagonal.default, aten.unfold.default, aten.split.Tensor,
    aten.split_with_sizes.default, aten.unbind.int, aten.clone.default, aten.lift_fresh_copy.default,
    aten.flip.default, aten.roll.default, aten.repeat.default, aten.index.Tensor, aten._unsafe_index.Tensor,
    aten.index_select.default, aten.gather.default, aten.tril.default, aten.triu.default, aten.stack.default,
    aten.index_put.default, aten._unsafe_index_put.default, aten.scatter.src,
    aten.scatter_add.default, aten.slice_scatter.default, aten.select_scatter.default,
    aten._unsafe_masked_index_put_accumulate.default,
    aten.diagonal_scatter.default, aten.masked_scatter.default, aten.masked_select.default, aten.take.default,
    aten.index_copy.default, aten.trace.default,
    aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default,
    aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default,
    aten.select_backward.default, aten.slice_backward.default, aten.diagonal_backward.default,
    aten.unfold_backward.default, aten.embedding.default, aten.im2col.default, aten.col2im.default,
    aten.diag_embed.default, aten.rot90.default, aten.put.default,
)  # fmt: skip
for _operator in _BY_PARTS:
    complex_decomposes(_operator)(by_parts(_operator))


def _with_value(operator: Any, position: int) -> Any:
    """`operator` on both parts; its argument at `position`, a number or a tensor, goes to where elements are."""

    def decompose(x: Tensor, *args: Any) -> Any:
        if not x.is_complex():
            return NotImplemented
        z = pair(x)
        # Only padding may omit it: the default is 0.
        value = operand(args[position - 1] if len(args) >= position else 0, x.dtype)
        before, after = args[: position - 1], args[position:]
        return joined(Pair(*(operator(part, *before, v, *after) for part, v in ((z.re, value.re), (z.im, value.im)))))

    return decompose


for _operator, _position in (
    (aten.masked_fill.Scalar, 2), (aten.masked_fill.Tensor, 2), (aten.constant_pad_nd.default, 2),
    (aten.index_fill.int_Scalar, 3), (aten.index_fill.int_Tensor, 3), (aten.scatter.value, 3),
    (aten._unsafe_masked_index.default, 3),
):  # fmt: skip
    complex_decomposes(_operator)(_with_value(_operator, _position))


@complex_decomposes(aten.index_add.default)
def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Any:
    if isinstance(alpha, complex):
        source, alpha = source * alpha, 1
    return by_parts(aten.index_add.default)(x, dim, index, source, alpha=alpha)


# A conjugate or negated view is computed: what asks for it to be resolved finds it so.
@complex_decomposes(aten.resolve_conj.default, aten.resolve_neg.default)
def _resolve(z: Tensor) -> Any:
    return joined(pair(z))


@complex_decomposes(aten._conj.default, aten.conj_physical.default, aten._conj_physical.default)
def _conj(z: Tensor | complex) -> Any:
    if not isinstance(z, Tensor):
        # In a backward, of a number that the model multiplied by.
        return torch.full((), z.conjugate(), dtype=torch.complex128)
    return joined(pair(z).conj())


@decomposes(aten._neg_view.default)
def _neg_view(x: Tensor) -> Any:
    return -x


@complex_decomposes(aten.as_strided.default)
def _as_strided(z: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> Any:
    offset = None if storage_offset is None else 2 * storage_offset
    parts = aten.as_strided.default(aten.view_as_real.default(z), [*size, 2], [*(2 * s for s in stride), 1], offset)
    return joined(Pair(parts.select(-1, 0), parts.select(-1, 1)))


@decomposes(aten.complex.default)
def _complex(re: Tensor, im: Tensor) -> Any:
    # What is joined has parts of one size.
    return NotImplemented if re.shape == im.shape else joined(Pair(re, im))


@decomposes(aten.view_as_complex.default)
def _view_as_complex(x: Tensor) -> Any:
    if x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    return joined(Pair(x.select(-1, 0), x.select(-1, 1)))


@complex_decomposes(aten.view.dtype)
def _view_dtype(x: Tensor, dtype: torch.dtype) -> Any:
    if x.dtype == dtype:
        return joined(pair(x))
    if x.dtype.is_complex and dtype == real_dtype(x.dtype):
        return aten.view_as_real.default(x).flatten(-2)
    if not x.dtype.is_complex and x.dtype == real_dtype(dtype):
        parts = x.unflatten(-1, (x.shape[-1] // 2, 2))
        return joined(Pair(parts.select(-1, 0), parts.select(-1, 1)))
    return NotImplemented


def _converted(x: Tensor, dtype: torch.dtype) -> Any:
    """Like `x.to(dtype)`: of complex numbers, real ones keep the real part."""
    if dtype.is_complex:
        return joined(operand(x, dtype))
    return nonzero(pair(x)) if dtype == torch.bool else pair(x).re.to(dtype)


@complex_decomposes(prims.convert_element_type.default)
def _convert_element_type(x: Tensor, dtype: torch.dtype) -> Any:
    return _converted(x, dtype)


@complex_decomposes(aten._to_copy.default)
def _to_copy(x: Tensor, *, dtype: torch.dtype | None = None, memory_format: Any = None, **_: Any) -> Any:
    result = _converted(x, dtype or x.dtype)
    return result if memory_format in (None, torch.preserve_format) else result.clone(memory_format=memory_format)


@complex_decomposes(aten.copy.default)
def _copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
    value = _converted(source, x.dtype) if source.dtype != x.dtype else source
    return value.expand(x.shape).clone()


@complex_decomposes(aten.cat.default)
def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    dtype = torch.complex64
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype) if tensor.dtype.is_complex else dtype
        dtype = torch.complex128 if tensor.dtype == torch.float64 else dtype
    pairs = [operand(tensor, dtype) for tensor in tensors]
    return joined(Pair(aten.cat.default([p.re for p in pairs], dim), aten.cat.default([p.im for p in pairs], dim)))


@complex_decomposes(aten.where.self)
def _where(condition: Tensor, a: Tensor, b: Tensor) -> Any:
    dtype = torch.result_type(a, b)
    x, y = operand(a, dtype), operand(b, dtype)
    return joined(Pair(torch.where(condition, x.re, y.re), torch.where(condition, x.im, y.im)))


@complex_decomposes(aten.fill.Scalar, aten.fill.Tensor)
def _fill(x: Tensor, value: Any) -> Any:
    if not x.is_complex():
        return NotImplemented
    to = operand(value, x.dtype)
    return joined(Pair(_filled(x.shape, to.re, x), _filled(x.shape, to.im, x)))


def _filled(size: Sequence[Any], value: Any, x: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value.expand(size)
    return torch.full(size, value, dtype=real_dtype(x.dtype), device=x.device)


def _constant(size: Sequence[Any], value: Any, dtype: torch.dtype) -> Any:
    number = operand(value, dtype)
    real = real_dtype(dtype)
    return joined(Pair(torch.full(size, number.re, dtype=real), torch.full(size, number.im, dtype=real)))


@complex_decomposes(aten.full.default)
def _full(size: Sequence[Any], value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    if dtype is None:
        dtype = complex_dtype(torch.get_default_dtype())
    return _constant(size, value, dtype) if dtype.is_complex else NotImplemented


@complex_decomposes(aten.scalar_tensor.default)
def _scalar_tensor(value: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    return _full([], value, dtype=dtype)


@complex_decomposes(aten.zeros.default, aten.empty.memory_format)
def _zeros(size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return _full(size, 0.0, dtype=dtype)


@complex_decomposes(aten.ones.default)
def _ones(size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return _full(size, 1.0, dtype=dtype)


def _like(x: Tensor, value: Any, dtype: torch.dtype | None) -> Any:
    dtype = dtype or x.dtype
    if not dtype.is_complex:
        return torch.full(x.shape, value, dtype=dtype)
    return _constant(x.shape, value, dtype)


@complex_decomposes(aten.full_like.default)
def _full_like(x: Tensor, value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return _like(x, value, dtype)


@complex_decomposes(aten.zeros_like.default, aten.empty_like.default)
def _zeros_like(x: Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return _like(x, 0, dtype)


@complex_decomposes(aten.ones_like.default)
def _ones_like(x: Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return _like(x, 1, dtype)


def _new(x: Tensor, size: Sequence[Any], value: Any, dtype: torch.dtype | None) -> Any:
    dtype = dtype or x.dtype
    return _constant(size, value, dtype) if dtype.is_complex else torch.full(size, value, dtype=dtype)


@complex_decomposes(aten.new_full.default)
def _new_full(x: Tensor, size: Sequence[Any], value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return _new(x, size, value, dtype)


@complex_decomposes(aten.new_zeros.default, aten.new_empty.default)
def _new_zeros(x: Tensor, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return _new(x, size, 0, dtype)


@complex_decomposes(aten.new_ones.default)
def _new_ones(x: Tensor, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return _new(x, size, 1, dtype)


@complex_decomposes(aten.new_empty_strided.default)
def _new_empty_strided(
    x: Tensor, size: Sequence[Any], stride: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any
) -> Any:
    return _new(x, size, 0, dtype)


@complex_decomposes(aten.empty_strided.default)
def _empty_strided(size: Sequence[Any], stride: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return _full(size, 0.0, dtype=dtype)


@complex_decomposes(aten.eye.default)
def _eye(n: Any, *, dtype: torch.dtype, **_: Any) -> Any:
    return _converted(torch.eye(n, dtype=real_dtype(dtype)), dtype)


@complex_decomposes(aten.eye.m)
def _eye_m(n: Any, m: Any, *, dtype: torch.dtype, **_: Any) -> Any:
    return _converted(torch.eye(n, m, dtype=real_dtype(dtype)), dtype)


@complex_decomposes(aten.linspace.default)
def _linspace(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    dtype = dtype or complex_dtype(torch.get_default_dtype())
    real, a, b = real_dtype(dtype), operand(start, dtype), operand(end, dtype)
    return joined(Pair(torch.linspace(a.re, b.re, steps, dtype=real), torch.linspace(a.im, b.im, steps, dtype=real)))
