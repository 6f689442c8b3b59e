"""Window functions, frequencies and ranges: of fixed sizes, and of sizes that vary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from aotpack import Dim
from tests.export.conftest import Build, assert_close

pytestmark = pytest.mark.torch


def close(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def _windows(n: Any, dtype: torch.dtype) -> list[Tensor]:
    return [
        *(window(n, dtype=dtype) for window in _FUNCTIONS),
        *(window(n, periodic=False, dtype=dtype) for window in _FUNCTIONS),
        torch.hamming_window(n, True, 0.3, dtype=dtype),
        torch.hamming_window(n, False, 0.3, 0.6, dtype=dtype),
        torch.kaiser_window(n, True, 3.5, dtype=dtype),
    ]


_FUNCTIONS = (
    torch.hann_window,
    torch.hamming_window,
    torch.blackman_window,
    torch.bartlett_window,
    torch.kaiser_window,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_windows(build: Build, dtype: torch.dtype) -> None:
    def windows(x: Tensor) -> tuple[Any, ...]:
        return x + 1, [_windows(n, dtype) for n in (0, 1, 2, 3, 16, 401)]

    archive, tolerance = build(windows, (torch.zeros(2),)), 2e-6 if dtype == torch.float32 else 1e-13
    for got, n in zip(archive(torch.zeros(2))[1], (0, 1, 2, 3, 16, 401), strict=True):
        close([window.double() for window in got], _windows(n, torch.float64), tolerance)


def test_windows_of_any_size(build: Build) -> None:
    def windows(x: Tensor) -> list[Tensor]:
        return [x * window for window in _windows(x.shape[0], x.dtype)]

    archive = build(windows, (torch.randn(9),), dynamic_shapes={"x": {0: Dim("n", min=1, max=5000)}})
    for n in (9, 1, 2, 3, 4096):
        x = torch.randn(n)
        close([w.double() for w in archive(x)], [x.double() * w for w in _windows(n, torch.float64)], 1e-5)


def test_spectra_of_windows(build: Build) -> None:
    def spectrum(x: Tensor) -> Tensor:
        return torch.stft(x, 64, 16, window=torch.hamming_window(64), return_complex=True).abs()

    archive = build(spectrum, (torch.randn(2, 400),), dynamic_shapes={"x": {1: Dim("n", min=64, max=9000)}})
    for n in (400, 64, 5000):
        x = torch.randn(2, n)
        window = torch.hamming_window(64, dtype=torch.float64)
        assert_close(archive(x), torch.stft(x.double(), 64, 16, window=window, return_complex=True).abs(), 1e-5)


def test_frequencies_and_ranges(build: Build) -> None:
    def model(x: Tensor) -> tuple[Any, ...]:
        n = x.shape[0]
        return (
            [(torch.fft.fftfreq(k, 0.3), torch.fft.rfftfreq(k)) for k in (1, 2, 7, 8)],
            (x * torch.fft.fftfreq(n), torch.fft.rfftfreq(n, 2.5, dtype=torch.float64)),
            torch.range(1, 8),
            torch.range(-1.5, 2, 0.4),
            torch.range(5, -5, -3, dtype=torch.int64),
        )

    archive = build(model, (torch.randn(9),), dynamic_shapes={"x": {0: Dim("n", min=1)}})
    for n in (9, 1, 100):
        x = torch.randn(n)
        with pytest.warns(UserWarning, match="torch.range is deprecated"):
            assert_close(archive(x), model(x), 1e-6)
