"""Packed weights: layout by the documentation's words, and round trips."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aotpack.export.ops.weight_packing import (
    PANEL,
    ConvLayout,
    conv_layout,
    pack_conv,
    pack_linear,
    packed_conv_sizes,
    transform_conv_2x2,
    unpack_conv,
    unpack_linear,
)


def numbered(sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """All elements differ, and none is zero."""
    count = int(torch.Size(sizes).numel())
    if dtype.itemsize == 2:  # exact to 256 or 2048 only: any distinct bit patterns of finite numbers do
        return torch.arange(128, 128 + count, dtype=torch.int32).to(torch.int16).view(dtype).reshape(sizes)
    return torch.arange(1, 1 + count, dtype=dtype).reshape(sizes)


DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])


@settings(deadline=None)
@given(n=st.integers(1, 100), k=st.integers(1, 20), dtype=DTYPES, transposed=st.booleans())
def test_linear(n: int, k: int, dtype: torch.dtype, transposed: bool) -> None:
    weight = numbered((k, n), dtype).t() if transposed else numbered((n, k), dtype)
    packed = pack_linear(weight)
    assert packed.shape == (-(-n // PANEL), k, PANEL)
    assert packed.is_contiguous()
    assert packed.dtype is dtype
    assert torch.equal(unpack_linear(packed, n), weight)
    assert int((packed != 0).sum()) == n * k, "padding is zero"
    row, column = n - 1, k - 1
    assert packed[row // PANEL, column, row % PANEL] == weight[row, column]


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[tuple[int, ...], int, bool]:
    """(weight sizes, groups, transposed)"""
    groups, transposed = draw(st.integers(1, 12)), draw(st.booleans())
    inner, outer = draw(st.integers(1, 5)), draw(st.integers(1, 40))
    kernel = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    first, second = (inner, outer) if transposed else (outer, inner)
    return (groups * first, second, *kernel), groups, transposed


@settings(deadline=None)
@given(convolution=convolutions(), dtype=DTYPES)
def test_conv(convolution: tuple[tuple[int, ...], int, bool], dtype: torch.dtype) -> None:
    sizes, groups, transposed = convolution
    weight, kernel = numbered(sizes, dtype), list(sizes[2:])
    packed = pack_conv(weight, groups, transposed)
    assert packed.is_contiguous()
    assert packed.dtype is dtype
    out_channels = sizes[1] * groups if transposed else sizes[0]
    assert torch.equal(unpack_conv(packed, out_channels, groups, kernel, transposed), weight)
    assert int((packed != 0).sum()) == weight.numel(), "padding is zero"
    assert packed.shape == packed_conv_sizes(weight, groups, transposed)
    taps, outputs = int(torch.Size(kernel).numel()), out_channels // groups
    inputs = sizes[0] // groups if transposed else sizes[1]
    if not transposed and inputs == outputs == 1:
        assert packed.shape == (taps, groups)
    elif not transposed and groups > 1 and outputs < PANEL:
        assert packed.shape == (-(-out_channels // PANEL), taps, inputs, PANEL)
    else:
        assert packed.shape == (groups, -(-outputs // PANEL), taps, inputs, PANEL)


@pytest.mark.parametrize(
    ("sizes", "groups", "transposed", "layout"),
    [
        ((64, 8, 3, 3), 1, False, ConvLayout.PANELS),
        ((8, 1, 3, 3), 8, False, ConvLayout.DEPTHWISE),
        ((8, 1, 3, 3), 8, True, ConvLayout.PANELS),
        ((1, 1, 3), 1, False, ConvLayout.DEPTHWISE),
        ((16, 1, 3, 3), 8, False, ConvLayout.GROUPED),
        ((8, 2, 3, 3), 8, False, ConvLayout.GROUPED),
        ((128, 4, 3, 3), 32, False, ConvLayout.GROUPED),
        ((62, 4, 1), 2, False, ConvLayout.GROUPED),
        ((64, 4, 1), 2, False, ConvLayout.PANELS),
        ((64, 4, 1), 4, True, ConvLayout.PANELS),
        ((0, 4, 1), 2, False, ConvLayout.PANELS),
    ],
)
def test_layouts(sizes: tuple[int, ...], groups: int, transposed: bool, layout: ConvLayout) -> None:
    assert conv_layout(torch.empty(sizes), groups, transposed) is layout


def test_groups_of_few_channels_are_packed_without_padding() -> None:
    for channels in (4, 8, 16):  # of each of the 32 groups in ResNeXt's stages
        weight = torch.empty(32 * channels, channels, 3, 3)
        assert pack_conv(weight, 32, False).numel() == weight.numel()


@pytest.mark.parametrize("transposed", [False, True])
def test_where_every_element_of_a_convolution_lies(transposed: bool) -> None:
    groups, inputs, outputs, kernel = 2, 3, 35, (2, 2)
    first, second = (inputs, outputs) if transposed else (outputs, inputs)
    weight = numbered((groups * first, second, *kernel), torch.float32)
    packed = pack_conv(weight, groups, transposed)
    for g, i, o, y, x in itertools.product(range(groups), range(inputs), range(outputs), range(2), range(2)):
        own = weight[g * inputs + i, o, y, x] if transposed else weight[g * outputs + o, i, y, x]
        assert packed[g, o // PANEL, 2 * y + x, i, o % PANEL] == own


def test_where_every_element_of_a_grouped_convolution_lies() -> None:
    groups, inputs, outputs = 5, 3, 7  # the second panel begins within a group
    weight = numbered((groups * outputs, inputs, 2, 2), torch.float32)
    packed = pack_conv(weight, groups, False)
    assert packed.shape == (2, 4, inputs, PANEL)
    for o, i, y, x in itertools.product(range(groups * outputs), range(inputs), range(2), range(2)):
        assert packed[o // PANEL, 2 * y + x, i, o % PANEL] == weight[o, i, y, x]


def test_the_transform_of_a_convolution() -> None:
    weight = torch.randn(35, 6, 3, 3)
    transformed = transform_conv_2x2(pack_conv(weight, 1, False))
    assert transformed.shape == (1, 2, 16, 6, PANEL)
    assert transformed.dtype is torch.float32
    assert transformed.is_contiguous()
    g = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], dtype=torch.float64)
    wanted = (g @ weight.double() @ g.t()).float()
    for o, i in itertools.product(range(35), range(6)):
        assert torch.equal(transformed[0, o // PANEL, :, i, o % PANEL].reshape(4, 4), wanted[o, i])
    assert not transformed[0, 1, :, :, 3:].any(), "padding is zero"
    torch.testing.assert_close(unpack_conv(transformed, 35, 1, [3, 3], False), weight, rtol=1e-6, atol=1e-6)


def test_sixteen_taps_of_another_kernel_are_no_transform() -> None:
    for kernel in ([4, 4], [16]):
        weight = torch.randn(5, 6, *kernel)
        assert torch.equal(unpack_conv(pack_conv(weight, 1, False), 5, 1, kernel, False), weight)
