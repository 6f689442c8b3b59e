"""Window functions of signals: torch.hann_window and the others, of sizes that may be dynamic.

Every one is symmetric over `n` places, of which a periodic window leaves out the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.dtypes import wide
from aotpack.export.decompositions.table import aten, decomposes, fixed


def _window(length: Any, periodic: bool, values: Callable[[Tensor, Any], Tensor], options: dict[str, Any]) -> Tensor:
    """`values` of the places 0, 1, … of a window, and of the last place; a window of one place is 1."""
    dtype, device = options.get("dtype") or torch.get_default_dtype(), options.get("device")
    if fixed(length) and length <= 1:
        return torch.ones(length, dtype=dtype, device=device)
    last = length if periodic else torch.sym_max(length - 1, 1)
    window = values(torch.arange(length, dtype=wide(dtype), device=device), last).to(dtype)
    if fixed(length):
        return window
    return torch.where(torch.full((), length, device=device) == 1, torch.ones_like(window), window)


def _cosines(*factors: float) -> Callable[[Tensor, Any], Tensor]:
    """The sum of factors[k] * cos(2πk place / last)."""

    def values(place: Tensor, last: Any) -> Tensor:
        angle = place * (2 * math.pi / last)
        window = torch.full_like(place, factors[0])
        for k, factor in enumerate(factors[1:], start=1):
            window = window + (angle * k).cos() * factor
        return window

    return values


@decomposes(aten.hann_window.default, aten.hann_window.periodic)
def hann(window_length: Any, periodic: bool = True, **options: Any) -> Any:
    return _window(window_length, periodic, _cosines(0.5, -0.5), options)


@decomposes(
    aten.hamming_window.default,
    aten.hamming_window.periodic,
    aten.hamming_window.periodic_alpha,
    aten.hamming_window.periodic_alpha_beta,
)
def hamming(window_length: Any, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any) -> Any:
    return _window(window_length, periodic, _cosines(alpha, -beta), options)


@decomposes(aten.blackman_window.default, aten.blackman_window.periodic)
def blackman(window_length: Any, periodic: bool = True, **options: Any) -> Any:
    return _window(window_length, periodic, _cosines(0.42, -0.5, 0.08), options)


@decomposes(aten.bartlett_window.default, aten.bartlett_window.periodic)
def bartlett(window_length: Any, periodic: bool = True, **options: Any) -> Any:
    return _window(window_length, periodic, lambda place, last: 1 - (place * (2 / last) - 1).abs(), options)


@decomposes(aten.kaiser_window.default, aten.kaiser_window.periodic, aten.kaiser_window.beta)
def kaiser(window_length: Any, periodic: bool = True, beta: float = 12.0, **options: Any) -> Any:
    def values(place: Tensor, last: Any) -> Any:
        # Rounding may put the last place a little beyond 1.
        root = (1 - (place * (2 / last) - 1).square()).clamp(min=0).sqrt()
        return torch.special.i0(root * beta) / torch.special.i0(torch.full_like(place, beta))

    return _window(window_length, periodic, values, options)
