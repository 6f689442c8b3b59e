"""Operators over kernels in every element type, against double precision."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn import functional

from aotpack.export import ops
from aotpack.export.ops.weight_packing import pack_conv, pack_linear
from tests.module_ops.cases import arrange
from tests.module_ops.harness import Driver, OperatorError

# Of one rounding to the type; sums are float.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 1.5e-3, torch.bfloat16: 1.2e-2}
DTYPES = list(TOLERANCE)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def randn(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    return (torch.rand(sizes) * 2 - 1).to(dtype)


def assert_near(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.dtype is dtype
    assert want.dtype is torch.float64
    torch.testing.assert_close(got.double(), want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@every_dtype
def test_linear(kernel_driver: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(1)
    for m, n, k, act in [(1, 40, 30, "none"), (7, 33, 64, "relu"), (20, 100, 17, "gelu"), (3, 5, 1, "silu")]:
        x, weight = arrange(generator, randn(dtype, m, k)), randn(dtype, n, k)
        bias, residual = randn(dtype, n), arrange(generator, randn(dtype, m, n))
        number, function = ops.ACTIVATIONS[act]
        [got] = kernel_driver("packed_linear", [x, pack_linear(weight), bias, residual], [n, number])
        want = function(functional.linear(x.double(), weight.double(), bias.double()) + residual.double())
        assert_near(got, want, dtype)


@every_dtype
def test_embedding(kernel_driver: Driver, dtype: torch.dtype) -> None:
    table, ids = randn(dtype, 50, 6), torch.randint(0, 50, (3, 4))
    [got] = kernel_driver("packed_embedding", [pack_linear(table), ids], [50])
    assert torch.equal(got, functional.embedding(ids, table))


@every_dtype
@pytest.mark.parametrize("packed", [True, False])
def test_convolution(kernel_driver: Driver, dtype: torch.dtype, packed: bool) -> None:
    generator = random.Random(2)
    for c, oc, groups, transposed in [
        (3, 40, 1, False),
        (16, 16, 16, False),
        (8, 12, 4, False),
        (6, 33, 1, True),
        (4, 8, 2, True),
    ]:
        x = arrange(generator, randn(dtype, 2, c, 7, 6))
        weight = arrange(generator, randn(dtype, *((c, oc // groups) if transposed else (oc, c // groups)), 3, 2))
        bias = randn(dtype, oc)
        stride, padding, dilation, out_padding = [2, 1], [1, 0], [1, 2], [1, 0] if transposed else [0, 0]
        lists = [*stride, *padding, *dilation, *out_padding]
        if packed:
            arguments = [oc, transposed, groups, 0, 3, 2, *lists]
            [got] = kernel_driver("packed_conv", [x, pack_conv(weight, groups, transposed), bias], arguments)
        else:
            [got] = kernel_driver("convolution", [x, weight, bias], [transposed, groups, *lists])
        want = torch.convolution(
            x.double(), weight.double(), bias.double(), stride, padding, dilation, transposed, out_padding, groups
        )
        assert_near(got, want, dtype)


@every_dtype
def test_products(kernel_driver: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(3)
    for batch, m, n, k in [(1, 1, 9, 20), (2, 30, 40, 17), (3, 4, 64, 130), (2, 50, 1, 8)]:
        a, b = arrange(generator, randn(dtype, batch, m, k)), arrange(generator, randn(dtype, batch, k, n))
        bias = randn(dtype, n)
        [got] = kernel_driver("bmm", [torch.empty(batch, m, n, dtype=dtype), a, b])
        assert_near(got, a.double() @ b.double(), dtype)
        [got] = kernel_driver("baddbmm", [torch.empty(batch, m, n, dtype=dtype), bias, a, b], real=2.0)
        assert_near(got, 2 * bias.double() + 0.5 * (a.double() @ b.double()), dtype)
        [got] = kernel_driver("mm", [torch.empty(m, n, dtype=dtype), a[0], b[0]])
        assert_near(got, a[0].double() @ b[0].double(), dtype)


@every_dtype
@pytest.mark.parametrize("mask", ["none", "causal", "bool", "same", "float"])
def test_attention(kernel_driver: Driver, dtype: torch.dtype, mask: str) -> None:
    for queries in (1, 20):
        q, k, v = randn(dtype, 2, 4, queries, 16), randn(dtype, 2, 2, 37, 16), randn(dtype, 2, 2, 37, 12)
        given = {
            "bool": torch.rand(queries, 37) < 0.7,
            "same": randn(dtype, 1, 1, queries, 37),
            "float": randn(torch.float32, 2, 1, queries, 37),
        }.get(mask)
        causal = mask == "causal"
        [got] = kernel_driver("attention", [q, k, v, given], [causal], real=0.25)
        wide = given.double() if given is not None and given.dtype is not torch.bool else given
        want = functional.scaled_dot_product_attention(
            q.double(), k.double(), v.double(), wide, is_causal=causal, scale=0.25, enable_gqa=True
        )
        assert_near(got, want, dtype)


@every_dtype
@pytest.mark.parametrize("gru", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_recurrent_layers(kernel_driver: Driver, dtype: torch.dtype, gru: bool, reverse: bool) -> None:
    steps, batch, size, hidden = 5, 3, 11, 37
    gates = (3 if gru else 4) * hidden
    x, states = randn(dtype, steps, batch, size), [randn(dtype, batch, hidden) for _ in range(1 if gru else 2)]
    w_ih, w_hh = randn(dtype, gates, size) * 0.3, randn(dtype, gates, hidden) * 0.3
    biases = [randn(dtype, gates), randn(dtype, gates)]
    given = [x, pack_linear(w_ih), pack_linear(w_hh), *biases, *states]
    got = kernel_driver("gru_layer" if gru else "lstm_layer", given, [hidden, reverse])
    module = (torch.nn.GRU if gru else torch.nn.LSTM)(size, hidden).double()
    for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), (w_ih, w_hh, *biases), strict=True):
        getattr(module, f"{name}_l0").data.copy_(value)
    wide = [state.double()[None] for state in states]
    with torch.no_grad():
        y, last = module(x.double().flip(0) if reverse else x.double(), wide[0] if gru else tuple(wide))
    want = [y.flip(0) if reverse else y, *(state[0] for state in ((last,) if gru else last))]
    for g, w in zip(got, want, strict=True):
        assert_near(g, w, dtype)


@every_dtype
@pytest.mark.parametrize("gru", [False, True])
def test_recurrent_layers_in_both_directions(kernel_driver: Driver, dtype: torch.dtype, gru: bool) -> None:
    steps, batch, size, hidden = 5, 3, 11, 37
    gates = (3 if gru else 4) * hidden
    x, states = randn(dtype, steps, batch, size), [randn(dtype, 2, batch, hidden) for _ in range(1 if gru else 2)]
    module = (torch.nn.GRU if gru else torch.nn.LSTM)(size, hidden, bidirectional=True).double()
    given = [x]
    for suffix in ("_l0", "_l0_reverse"):
        weights = [randn(dtype, gates, size) * 0.3, randn(dtype, gates, hidden) * 0.3]
        biases = [randn(dtype, gates), randn(dtype, gates)]
        given += [*map(pack_linear, weights), *biases]
        for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), (*weights, *biases), strict=True):
            getattr(module, name + suffix).data.copy_(value)
    got = kernel_driver("gru_both" if gru else "lstm_both", [*given, *states], [hidden])
    wide = [state.double() for state in states]
    with torch.no_grad():
        y, last = module(x.double(), wide[0] if gru else tuple(wide))
    for g, w in zip(got, [y, *((last,) if gru else last)], strict=True):
        assert_near(g, w, dtype)


@every_dtype
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_embedding_bag(kernel_driver: Driver, dtype: torch.dtype, mode: int) -> None:
    table, ids, offsets = randn(dtype, 30, 19), torch.randint(0, 30, (40,)), torch.tensor([0, 3, 3, 10, 39])
    factors = randn(dtype, 40) if mode == 0 else None
    [got] = kernel_driver("embedding_bag", [table, ids, offsets, factors], [mode, 0, -1])
    want = functional.embedding_bag(
        ids,
        table.double(),
        offsets,
        mode=("sum", "mean", "max")[mode],
        per_sample_weights=None if factors is None else factors.double(),
    )
    assert_near(got, want, dtype)


def test_refusals_name_operator_and_dtype(kernel_driver: Driver) -> None:
    wrong = torch.zeros(2, 2, 2, 2, dtype=torch.float64)
    with pytest.raises(OperatorError, match="attention does not support int64"):
        kernel_driver("attention", [wrong.long()] * 3, [0], real=1.0)
    with pytest.raises(OperatorError, match="attention does not support a mask of int64"):
        kernel_driver("attention", [wrong.half()] * 3 + [wrong.long()], [0], real=1.0)
    with pytest.raises(OperatorError, match="linear does not support float64"):
        kernel_driver("packed_linear", [wrong, torch.zeros(1, 2, 32)], [2, 0])
    with pytest.raises(OperatorError, match="convolution does not support bool"):
        kernel_driver("convolution", [wrong.bool(), wrong.bool()], [0, 1, 1, 1, 0, 0, 1, 1, 0, 0])
    with pytest.raises(OperatorError, match="matrix product does not support bool"):
        kernel_driver("mm", [wrong[0, 0].bool()] * 3)
    with pytest.raises(OperatorError, match="embedding does not support a packed table of float64"):
        kernel_driver("packed_embedding", [torch.zeros(1, 2, 32, dtype=torch.float64), torch.tensor([0])], [2])
    with pytest.raises(OperatorError, match="embedding_bag does not support float64"):
        kernel_driver("embedding_bag", [wrong[0, 0], torch.tensor([0]), torch.tensor([0])], [0, 0, -1])
