"""Products, linears, convolutions, recurrent layers and attention."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from aotpack.export import ops
from aotpack.export.ops import weight_packing
from tests.odd_inputs.harness import Case
from tests.odd_inputs.tensors import KERNEL_DTYPES, around, indices, values

aten = torch.ops.aten
_CPU = "aoti_torch_cpu_"


def cases() -> Iterator[Case]:
    yield from _gemm()
    yield from _grouped()
    yield from _linear()
    yield from _conv()
    yield from _winograd()
    yield from _depthwise_blocks()
    yield from _recurrent()
    yield from _attention()


def _gemm() -> Iterator[Case]:
    for dtype in (*KERNEL_DTYPES, torch.float64, torch.int64):
        for m, k, n in around(5, 33, 18):
            a, b = values(m, k, dtype=dtype), values(k, n, dtype=dtype)
            yield Case(f"{_CPU}mm_out", aten.mm, (a, b))
            bias = values(n, dtype=dtype)
            yield Case(f"{_CPU}addmm_out", _addmm(aten.addmm), (bias, a, b, 1.0, 1.0))
            yield Case(f"{_CPU}addmm_out", _addmm(aten.addmm), (values(m, n, dtype=dtype), a, b, 2.0, 3.0))
        for batch, m, k, n in around(3, 4, 17, 9):
            a, b = values(batch, m, k, dtype=dtype), values(batch, k, n, dtype=dtype)
            yield Case(f"{_CPU}bmm_out", aten.bmm, (a, b))
            yield Case(f"{_CPU}baddbmm_out", _addmm(aten.baddbmm), (values(batch, m, n, dtype=dtype), a, b, 2.0, 1.0))
    for m, k, n in around(20, 32, 24, zeros=()):
        a, b = values(m, k, dtype=torch.int8), values(k, n, dtype=torch.int8)
        yield Case(f"{_CPU}_int_mm_out", lambda a, b: a.int() @ b.int(), (a, b))
        # Beyond what int8 holds.
        unsigned = torch.randint(0, 256, (m, k), dtype=torch.uint8)
        yield Case(f"{_CPU}_int_mm_out", lambda a, b: a.int() @ b.int(), (unsigned, b))


def _grouped() -> Iterator[Case]:
    for dtype in (*KERNEL_DTYPES, torch.float64):
        for rows, k, n in around(9, 33, 18):
            x = values(rows, k, dtype=dtype)
            # Groups that are empty, at both ends too, and rows that none has.
            for ends in ([0, rows // 2, rows // 2, rows], [rows // 3, rows // 3], [rows], []):
                where = torch.tensor(ends, dtype=torch.int32 if rows else torch.int64)
                w = values(len(ends), k, n, dtype=dtype)
                yield Case(f"{_CPU}grouped_mm", ops.grouped_mm, (x, w, where), fixed=(2,))
                if ends:
                    rows_of_b = values(rows, n, dtype=dtype)
                    yield Case(f"{_CPU}grouped_outer", ops.grouped_outer, (x.t(), rows_of_b, where), fixed=(2,))


def _addmm(operator: Any) -> Any:
    return lambda c, a, b, beta, alpha: operator(c, a, b, beta=int(beta), alpha=int(alpha))


def _linear() -> Iterator[Case]:
    for dtype in KERNEL_DTYPES:
        for rows, k, n in around(7, 40, 45, zeros=(0,)):
            weight = values(n, k, dtype=dtype)
            packed = weight_packing.pack_linear(weight)
            x, bias, residual = values(rows, k, dtype=dtype), values(n, dtype=dtype), values(rows, n, dtype=dtype)
            for act in (0, 1, 2):
                yield Case(f"{_CPU}packed_linear", ops.packed_linear, (x, packed, bias, residual, n, act), packed=(1,))
            yield Case(f"{_CPU}packed_linear", ops.packed_linear, (x, packed, None, None, n, 4), packed=(1,))
            yield Case(f"{_CPU}pack_linear", ops.pack_linear, (weight,))
            ids = indices(n, 3, rows)
            yield Case(f"{_CPU}packed_embedding", ops.packed_embedding, (packed, ids, n), packed=(0,))
            yield Case(f"{_CPU}layer_norm", ops.layer_norm, (x, values(k, dtype=dtype), values(k, dtype=dtype), 1e-5))
            yield Case(f"{_CPU}layer_norm", ops.layer_norm, (x, None, None, 0.1))
    for sizes in around(3, 4, 5):
        yield Case(f"{_CPU}to_layout", ops.to_layout, (values(*sizes), [2, 0, 1]))
        yield Case(f"{_CPU}to_layout", ops.to_layout, (values(*sizes, dtype=torch.int16), [1, 2, 0]))
    for parts in (1, 2, 3, 5):
        for sizes in around(2, 5, 3, 4):
            for dtype in (torch.float32, torch.bfloat16, torch.uint8, torch.float64):
                yield Case(f"{_CPU}interleave", ops.interleave, ([values(*sizes, dtype=dtype) for _ in range(parts)],))


_SHAPES = [
    # in, out, size, kernel, stride, padding, dilation, groups
    (6, 40, (9, 8), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (4, 3, (9, 8), (3, 2), (2, 1), (0, 1), (1, 2), 1),
    (8, 8, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), 8),
    (8, 12, (6, 5), (1, 3), (1, 2), (0, 0), (1, 1), 4),
    (1, 1, (1, 1), (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (5, 33, (20,), (4,), (3,), (2,), (1,), 1),
    (3, 4, (4, 5, 6), (2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 1, 2), 1),
]


def _conv() -> Iterator[Case]:
    for dtype in KERNEL_DTYPES:
        for cin, cout, size, kernel, stride, padding, dilation, groups in _SHAPES:
            for transposed in (False, True):
                for batch in (2, 1, 0):
                    shape = (cin, cout // groups, *kernel) if transposed else (cout, cin // groups, *kernel)
                    weight = values(*shape, dtype=dtype)
                    x, bias = values(batch, cin, *size, dtype=dtype), values(cout, dtype=dtype)
                    none = [0] * len(size)
                    how = (list(stride), list(padding), list(dilation), transposed, none, groups)
                    yield Case(
                        f"{_CPU}convolution", torch.convolution, (x, weight, bias, *how), tolerance=_loose(dtype)
                    )
                    packed = weight_packing.pack_conv(weight, groups, transposed)
                    arguments = (x, packed, bias, None, cout, list(kernel), *how, 1)
                    yield Case(f"{_CPU}packed_conv", ops.packed_conv, arguments, packed=(1,), tolerance=_loose(dtype))
                    if not transposed:
                        uneven = [*padding, *(p + 1 - d % 2 for d, p in enumerate(padding))]
                        arguments = (x, packed, bias, None, cout, list(kernel), list(stride), uneven, *how[2:], 1)
                        yield Case(
                            f"{_CPU}packed_conv", ops.packed_conv, arguments, packed=(1,), tolerance=_loose(dtype)
                        )
                    if batch == 2:
                        one = ([stride[0]], [padding[0]], [dilation[0]], transposed, [0], groups)  # for all dims
                        yield Case(
                            f"{_CPU}convolution", torch.convolution, (x, weight, bias, *one), tolerance=_loose(dtype)
                        )
                        yield Case(f"{_CPU}pack_conv", ops.pack_conv, (weight, groups, transposed))


def _winograd() -> Iterator[Case]:
    for cin, cout, size in [(3, 5, (1, 2)), (17, 33, (6, 9)), (4, 1, (4, 4)), (33, 40, (13, 7))]:
        for batch, padding in itertools.product((2, 0), (0, 1, 2)):
            x, bias = values(batch, cin, *size, dtype=torch.float32), values(cout, dtype=torch.float32)
            packed = weight_packing.pack_conv(values(cout, cin, 3, 3, dtype=torch.float32), 1, False)
            out = [max(0, s + 2 * padding - 2) for s in size]
            if 0 in out:
                continue
            residual = values(batch, cout, *out, dtype=torch.float32)
            for transform in (weight_packing.transform_conv_2x2, weight_packing.transform_conv_4x4):
                how = (cout, [3, 3], [1, 1], [padding, padding], [1, 1], False, [0, 0], 1, 1)
                for arguments in ((x, transform(packed), bias, residual), (x, transform(packed), None, None)):
                    yield Case(f"{_CPU}packed_conv", ops.packed_conv, (*arguments, *how), packed=(1,))


def _loose(dtype: torch.dtype) -> float | None:
    """Sums of many products of halves."""
    return {torch.bfloat16: 5e-2, torch.float16: 8e-3}.get(dtype)


def _depthwise_blocks() -> Iterator[Case]:
    for dtype in KERNEL_DTYPES:
        # The last is large enough to be computed in bands of rows.
        for batch, c, wide, out, size in [(0, 3, 4, 5, 6), (2, 3, 17, 5, 9), (1, 1, 1, 1, 1), (1, 8, 130, 9, 33)]:
            expand, project = (
                weight_packing.pack_conv(values(*shape, 1, 1, dtype=dtype), 1, False)
                for shape in ((wide, c), (out, wide))
            )
            weight = weight_packing.pack_conv(values(wide, 1, 3, 3, dtype=dtype), wide, False)
            first, second, third = (values(n, dtype=dtype) for n in (wide, wide, out))
            x, thin = values(batch, wide, size, size, dtype=dtype), values(batch, c, size, size, dtype=dtype)
            how = ([3, 3], [1, 1], [1, 1], [1, 1], [1, 8, 0])
            residuals = values(batch, out, size, size, dtype=dtype), values(batch, wide, size, size, dtype=dtype)
            for arguments in (
                (thin, expand, first, weight, second, project, third, residuals[0], out, *how),
                (thin, expand, None, weight, None, None, None, residuals[1], wide, *how),
                (x, None, None, weight, second, project, None, None, out, *how),
            ):
                # One channel is packed as a depthwise weight.
                if all(each is None or each.dim() == 5 for each in (arguments[1], arguments[5])):
                    yield Case(
                        f"{_CPU}depthwise_block",
                        ops.depthwise_block,
                        arguments,
                        packed=(1, 3, 5),
                        tolerance=_loose(dtype),
                    )


def _recurrent() -> Iterator[Case]:
    for steps, batch, size, hidden in around(4, 3, 10, 7, zeros=()):
        x, h, c = values(steps, batch, size), values(batch, hidden), values(batch, hidden)
        for gates, name in ((4, "lstm_layer"), (3, "gru_layer")):
            w_ih = weight_packing.pack_linear(values(gates * hidden, size))
            w_hh = weight_packing.pack_linear(values(gates * hidden, hidden))
            b_ih, b_hh = values(gates * hidden), values(gates * hidden)
            state = (h, c) if gates == 4 else (h,)
            for reverse in (False, True):
                yield Case(
                    f"{_CPU}{name}",
                    getattr(ops, name),
                    (x, w_ih, w_hh, b_ih, b_hh, *state, hidden, reverse),
                    packed=(1, 2),
                )
            yield Case(
                f"{_CPU}{name}", getattr(ops, name), (x, w_ih, w_hh, None, None, *state, hidden, False), packed=(1, 2)
            )
            name = f"{name.partition('_')[0]}_both"
            both = [torch.stack((each, each * 0.5)) for each in state]
            for one, other in (((b_ih, b_hh), (b_hh, b_ih)), ((None, None), (None, None))):
                yield Case(
                    f"{_CPU}{name}",
                    getattr(ops, name),
                    (x, w_ih, w_hh, *one, w_ih * 0.5, w_hh * 0.5, *other, *both, hidden),
                    packed=(1, 2, 5, 6),
                )


def _attention() -> Iterator[Case]:
    for dtype in KERNEL_DTYPES:
        for batch, heads, length, keys, depth in around(2, 4, 9, 17, 16, zeros=(0, 2)):
            q = values(batch, heads, length, depth, dtype=dtype)
            k, v = values(batch, heads, keys, depth, dtype=dtype), values(batch, heads, keys, depth, dtype=dtype)
            scale = depth**-0.5
            yield Case(f"{_CPU}attention", ops.attention, (q, k, v, None, False, scale), tolerance=_loose(dtype))
            keep = torch.rand(batch, 1, length, keys) > 0.2
            keep[..., :1] = True
            yield Case(
                f"{_CPU}attention", ops.attention, (q, k, v, keep, False, scale), fixed=(3,), tolerance=_loose(dtype)
            )
            added = values(1, heads, length, keys, dtype=dtype)
            yield Case(f"{_CPU}attention", ops.attention, (q, k, v, added, False, scale), tolerance=_loose(dtype))
