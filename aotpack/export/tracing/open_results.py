"""Results of the example call that are not unique: answers that differ from eager's may also be right.

Equal elements have no order, and elements that differ by rounding alone have another one wherever sums are added up in
another order; singular vectors and eigenvectors are unique up to a factor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from aotpack.export.ir.program import Program
from aotpack.export.torch_compat.dispatch import FollowingMode

aten = torch.ops.aten

# Floats whose distance is less than this many units in the last place of the largest count as equal.
_UNITS = 100


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """While active, receives what calls of eager PyTorch leave open, each reason once."""
    mode = _Watch()
    with mode:
        yield mode.reasons


def noted(program: Program, reasons: list[str]) -> Program:
    """The program, whose example call leaves open what `reasons` say."""
    if program.reference is None or not reasons:
        return program
    return replace(program, reference=replace(program.reference, open=tuple(reasons)))


class _Watch(FollowingMode):
    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        look = _OPEN.get(func)
        if look is not None:
            reason = look(*args, **kwargs)
            if reason is not None and (text := f"{func.overloadpacket}: {reason}") not in self.reasons:
                self.reasons.append(text)
        return result


def _equal(values: torch.Tensor, dim: int, first: int | None, *, largest: bool = True) -> str | None:
    """Whether, among the `first` elements along a dim and the next one after these, two are equal or nearly so."""
    if values.dim() == 0 or values.shape[dim] < 2 or not values.numel() or values.is_complex():
        return None
    if values.dtype == torch.bool:
        return "equal elements have no defined order"
    count = values.shape[dim] if first is None else min(first + 1, values.shape[dim])
    kept = values.topk(count, dim, largest).values
    # Equal elements that are infinite (masked, most often) are equal everywhere, and stay so.
    gaps = kept.diff(dim=dim).abs()
    if not values.is_floating_point():
        return "equal elements have no defined order" if bool((gaps == 0).any()) else None
    finite = values[values.isfinite()]
    limit = _UNITS * torch.finfo(values.dtype).eps * (float(finite.abs().max()) if finite.numel() else 0.0)
    return "elements that differ only by rounding have no defined order" if bool((gaps <= limit).any()) else None


def _topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> str | None:
    return _equal(x, dim, k, largest=largest)


def _sort(x: torch.Tensor, dim: int = -1, descending: bool = False, **_: Any) -> str | None:
    return _equal(x, dim, None)


def _kth(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> str | None:
    return _equal(x, dim, None)


def _middle(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> str | None:
    return _equal(x, dim, None)


def _greatest(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> str | None:
    return _equal(x.flatten() if dim is None else x, 0 if dim is None else dim, 1)


def _least(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> str | None:
    return _equal(x.flatten() if dim is None else x, 0 if dim is None else dim, 1, largest=False)


def _factor(*_: Any, **__: Any) -> str | None:
    return "the vectors are unique up to a factor"


_OPEN: dict[Any, Callable[..., str | None]] = {
    aten.topk.default: _topk,
    aten.sort.default: _sort,
    aten.sort.stable: lambda x, *, stable=None, dim=-1, descending=False: _equal(x, dim, None),
    aten.kthvalue.default: _kth,
    aten.median.dim: _middle,
    aten.nanmedian.dim: _middle,
    aten.mode.default: _middle,
    aten.max.dim: _greatest,
    aten.argmax.default: _greatest,
    aten.min.dim: _least,
    aten.argmin.default: _least,
    aten._linalg_svd.default: lambda x, full_matrices=False, compute_uv=True, **_: _factor() if compute_uv else None,
    aten._linalg_eigh.default: lambda x, *_, compute_v=True: _factor() if compute_v else None,
    aten.linalg_eig.default: _factor,
    aten.linalg_qr.default: _factor,
    aten.geqrf.default: _factor,
}
