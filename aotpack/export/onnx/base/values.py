"""Values between nodes: tensors, tensors whose elements are known at capture, sequences and optionals.

Sizes of inputs, and what a model computes from them, have to stay numbers: a `Reshape` to a tensor that a kernel has
computed would have sizes that are not known. A `Known` has such numbers, Python's own or torch's symbolic ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

# Elements of a constant up to which it is also known.
MOST = 4096


@dataclass(frozen=True, eq=False)
class Known:
    """A tensor whose elements are numbers of the capture.

    Attributes:
        values: the elements, an array of objects: int, float, bool, `torch.SymInt`, `torch.SymFloat`, `torch.SymBool`.
        dtype: of the tensor.
        stored: the same as a tensor of the model; None if it was computed.
    """

    values: np.ndarray[Any, Any]
    dtype: torch.dtype
    stored: torch.Tensor | None = None

    @classmethod
    def of(cls, values: Any, dtype: torch.dtype = torch.int64) -> Known:
        """From a number or a list of numbers."""
        return cls(_objects(values), dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def flat(self) -> list[Any]:
        """The elements, row-major."""
        return list(self.values.reshape(-1))

    def is_plain(self) -> bool:
        """Whether no element depends on sizes of the call."""
        return not any(isinstance(v, (torch.SymInt, torch.SymFloat, torch.SymBool)) for v in self.flat())

    def tensor(self) -> torch.Tensor:
        if self.stored is not None:
            return self.stored
        if self.is_plain():
            return torch.tensor(self.values.tolist(), dtype=self.dtype)
        if not self.shape:
            return _scalar(self.values.item(), self.dtype)
        return torch.stack([_scalar(v, self.dtype) for v in self.flat()]).reshape(self.shape)


Value = torch.Tensor | Known | list[Any] | None


def _objects(values: Any) -> np.ndarray[Any, Any]:
    if isinstance(values, np.ndarray):
        return values.astype(object)
    if isinstance(values, (list, tuple)):
        # Element by element: numpy would ask symbolic numbers for their values.
        made = np.empty(len(values), dtype=object)
        for i, value in enumerate(values):
            made[i] = value
        return made
    made = np.empty((), dtype=object)
    made[()] = values
    return made


def _scalar(value: Any, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(value, torch.SymBool):
        value = torch.sym_ite(value, 1, 0)
    return torch.scalar_tensor(value, dtype=dtype)


def known(tensor: torch.Tensor) -> Known | None:
    """A constant of the model as known numbers; None where it is large or not of numbers."""
    if tensor.numel() > MOST or tensor.dtype.is_complex or tensor.is_meta:
        return None
    plain = tensor if tensor.dtype in _IN_NUMPY else tensor.float()
    return Known(_objects(plain.detach().numpy()), tensor.dtype, tensor)


_IN_NUMPY = {
    torch.float16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
}


def as_tensor(value: Any) -> Any:
    """A tensor for what may be known; sequences and None as they are."""
    if isinstance(value, Known):
        return value.tensor()
    return value


def as_numbers(value: torch.Tensor | Known) -> list[Any]:
    """The elements as numbers: known ones, or numbers that each call reads from the tensor (`item`)."""
    if isinstance(value, Known):
        return value.flat()
    flat = value.reshape(-1)
    return [flat[i].item() for i in range(flat.shape[0])]


def product(sizes: Sequence[Any]) -> Any:
    return math.prod(sizes)
