"""Interleaves the channels of tensors: a channel shuffle, together with the concatenation before it."""

from __future__ import annotations

import torch
from torch import Tensor

from aotpack.export.ops.layout import channels_last_strides
from aotpack.export.ops.registry import define


def _interleave(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts, 2).flatten(1, 2).contiguous(memory_format=torch.contiguous_format)


def _interleave_fake(parts: list[Tensor]) -> Tensor:
    first = parts[0]
    sizes = [first.shape[0], first.shape[1] * len(parts), *first.shape[2:]]
    return first.new_empty_strided(sizes, channels_last_strides(sizes))


interleave = define("interleave(Tensor[] parts) -> Tensor", _interleave, _interleave_fake)
"""Parts are [n, c, *spatial], the result [n, c * parts, *spatial], channels-last; its channel i * parts + j is channel
i of part j.
"""
