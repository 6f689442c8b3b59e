"""Gradients as flat buckets, which data-parallel training reduces between machines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# As torch's DistributedDataParallel.
DEFAULT_BYTES = 25 * 1024 * 1024


@dataclass(frozen=True)
class Slot:
    """Where a gradient is: in row-major order from element `offset` of a bucket."""

    bucket: str
    offset: int
    shape: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.offset + math.prod(self.shape)


class _Bucket:
    def __init__(self) -> None:
        self.slots: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.elements = self.nbytes = self.finished = 0


def assigned(gradients: Mapping[str, Tensor], limit: int) -> dict[str, Slot]:
    """The slots of all gradients.

    A bucket has one dtype and at most `limit` bytes; a larger gradient is alone in a bucket. Buckets are numbered in
    the order in which their last gradients come.

    Args:
        gradients: by parameter, in the order in which the backward finishes them.
    """
    made: list[_Bucket] = []
    filling: dict[torch.dtype, _Bucket] = {}
    for place, (name, gradient) in enumerate(gradients.items()):
        size = gradient.numel() * gradient.element_size()
        bucket = filling.get(gradient.dtype)
        if bucket is None or (size > 0 < bucket.nbytes and bucket.nbytes + size > limit):
            bucket = filling[gradient.dtype] = _Bucket()
            made.append(bucket)
        bucket.slots[name] = (bucket.elements, tuple(gradient.shape))
        bucket.elements += gradient.numel()
        bucket.nbytes += size
        bucket.finished = place
    made.sort(key=lambda bucket: bucket.finished)
    return {
        name: Slot(f"bucket{number}", offset, shape)
        for number, bucket in enumerate(made)
        for name, (offset, shape) in bucket.slots.items()
    }


def flat(slots: Mapping[str, Slot], gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The buckets, new tensors of rank 1."""
    parts: dict[str, list[Tensor]] = {}
    for name, slot in slots.items():
        parts.setdefault(slot.bucket, []).append(gradients[name].reshape(-1))
    return {bucket: torch.cat(each) for bucket, each in parts.items()}


def gradients_of(slots: Mapping[str, Slot], buckets: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradients, views of the buckets."""
    return {name: buckets[slot.bucket][slot.offset : slot.end].view(slot.shape) for name, slot in slots.items()}


def table(slots: Mapping[str, Slot]) -> dict[str, Any]:
    """The slots as constants of a signature."""
    return {name: {"bucket": s.bucket, "offset": s.offset, "shape": list(s.shape)} for name, s in slots.items()}
