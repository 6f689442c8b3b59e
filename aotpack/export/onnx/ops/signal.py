"""Signals: Fourier transforms, windows, mel filters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from onnx import TensorProto

from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.onnx.base.values import as_numbers
from aotpack.export.onnx.ops.shapes import plain_numbers

Tensor = torch.Tensor


def _complex(node: Node, x: Tensor) -> Tensor:
    """[…, 1] or […, 2] as real or complex numbers."""
    if x.shape[-1] == 1:
        return x.squeeze(-1)
    if x.shape[-1] != 2:
        raise node.error(f"the last dim of its input is {x.shape[-1]}, not 1 or 2")
    return torch.view_as_complex(x.contiguous())


def _transform(node: Node, x: Tensor, length: Any, axis: int) -> Tensor:
    axis = axis % x.dim()
    if axis == x.dim() - 1:
        raise node.error("the axis is that of real and imaginary parts")
    dtype = x.dtype
    x = x.float() if dtype in (torch.float16, torch.bfloat16) else x
    size = None if length is None else as_numbers(length)[0]
    numbers, onesided = _complex(node, x), bool(node.get("onesided", 0))
    if node.get("inverse", 0):
        if onesided:
            return torch.fft.irfft(numbers, size, axis).unsqueeze(-1).to(dtype)
        result = torch.fft.ifft(numbers, size, axis)
    elif onesided:
        if numbers.is_complex():
            full = torch.fft.fft(numbers, size, axis)
            result = full.narrow(axis, 0, full.shape[axis] // 2 + 1)
        else:
            result = torch.fft.rfft(numbers, size, axis)
    else:
        result = torch.fft.fft(numbers, size, axis)
    return torch.view_as_real(result).to(dtype)


@operator("DFT", since=17, known=(1,))
def dft_by_attribute(node: Node, x: Tensor, length: Any = None) -> Tensor:
    return _transform(node, x, length, node.get("axis", 1))


@operator("DFT", since=20, known=(1, 2))
def dft(node: Node, x: Tensor, length: Any = None, axis: Any = None) -> Tensor:
    place = -2 if axis is None else int(plain_numbers(node, axis, "its axis is")[0])
    return _transform(node, x, length, place)


@operator("STFT", since=17, known=(1, 3))
def stft(node: Node, x: Tensor, step: Any, window: Tensor | None = None, length: Any = None) -> Tensor:
    hop = int(plain_numbers(node, step, "its step is")[0])
    if length is not None:
        size = int(plain_numbers(node, length, "the length of its frames is")[0])
    else:
        size = x.shape[1] if window is None else window.shape[0]
    if hop <= 0 or size <= 0:
        raise node.error(f"frames of {size} elements, one each {hop}, are not possible")
    dtype = x.dtype
    if x.dim() == 2:
        # Files have real signals without the last dim, as ONNX Runtime accepts them.
        x = x.unsqueeze(-1)
    numbers = _complex(node, x.float() if dtype in (torch.float16, torch.bfloat16) else x)
    frames = numbers.unfold(1, size, hop)
    if window is not None:
        frames = frames * torch.nn.functional.pad(window, [0, size - window.shape[0]]).to(x.dtype)
    if not node.get("onesided", 1):
        result = torch.fft.fft(frames)
    elif frames.is_complex():
        result = torch.fft.fft(frames)[..., : size // 2 + 1]
    else:
        result = torch.fft.rfft(frames)
    return torch.view_as_real(result).to(dtype)


# ---- windows --------------------------------------------------------------------------------------------------------


def _window(name: str, constant: float, *factors: float) -> None:
    """A window that is a sum of cosines."""

    @operator(name, since=17, known=(0,))
    def compute(node: Node, size: Any) -> Tensor:
        count = as_numbers(size)[0]
        dtype = dtypes.torch_dtype(node.get("output_datatype", TensorProto.FLOAT))
        period = count if node.get("periodic", 1) else count - 1
        turn = torch.arange(count, dtype=torch.float64) * (2 * math.pi) / period
        total = torch.full_like(turn, constant)
        for i, factor in enumerate(factors):
            total = total + factor * torch.cos(turn * (i + 1))
        return total.to(dtype)


_window("BlackmanWindow", 0.42, -0.5, 0.08)
_window("HannWindow", 0.5, -0.5)
_window("HammingWindow", 25 / 46, -21 / 46)


@operator("MelWeightMatrix", since=17, known=(0, 1, 2, 3, 4))
def mel_weight_matrix(node: Node, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Tensor:
    numbers = [plain_numbers(node, value, "its inputs are")[0] for value in (bins, length, rate, low, high)]
    count, size, sample_rate = (int(v) for v in numbers[:3])
    if count <= 0 or size <= 0 or sample_rate <= 0:
        raise node.error(f"{count} filters of {size} samples at {sample_rate} Hz are not possible")
    edges = np.asarray([2595 * math.log10(1 + float(v) / 700) for v in numbers[3:]])
    mels = np.arange(count + 2) * ((edges[1] - edges[0]) / (count + 2)) + edges[0]
    places = (size + 1) * (700 * (10 ** (mels / 2595) - 1)) // sample_rate
    lower, centre, upper = (places[i : i + count] for i in range(3))
    row = np.arange(size // 2 + 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.where(lower == centre, row == centre, (row - lower) / (centre - lower))
        fall = (upper - row) / (upper - centre)
    values = np.where((row >= lower) & (row <= centre), rise, 0.0)
    values = np.where((row >= centre) & (row < upper), fall, values)
    return torch.tensor(values, dtype=dtypes.torch_dtype(node.get("output_datatype", TensorProto.FLOAT)))
