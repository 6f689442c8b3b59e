"""Factories of signal processing whose sizes cannot be symbolic in torch: formulas accept dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aotpack.export.decompositions.creation import ranges
from aotpack.export.decompositions.signal import window_functions
from aotpack.export.decompositions.table import fixed
from aotpack.export.overrides.table import overrides

_FORMULAS: dict[Any, Callable[..., Any]] = {
    torch.hann_window: window_functions.hann,
    torch.hamming_window: window_functions.hamming,
    torch.blackman_window: window_functions.blackman,
    torch.bartlett_window: window_functions.bartlett,
    torch.kaiser_window: window_functions.kaiser,
    torch.fft.fftfreq: ranges.fftfreq,
    torch.fft.rfftfreq: ranges.rfftfreq,
}


def _of_any_size(formula: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        size = args[0] if args else kwargs.get("window_length", kwargs.get("n"))
        if fixed(size) or kwargs.get("out") is not None or kwargs.get("requires_grad"):
            return NotImplemented
        return formula(*args, **kwargs)

    return function


for _function, _formula in _FORMULAS.items():
    overrides(_function)(_of_any_size(_formula))
