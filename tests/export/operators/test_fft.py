"""Fourier transforms in archives: all of torch.fft, spectrograms, sizes that vary, several contexts at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor
from torch.export import Dim

from tests.export.conftest import Build, assert_close


def transforms(x: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    fft = torch.fft
    window = torch.hann_window(16)
    frames = torch.stft(x.flatten(1), 16, 6, window=window, return_complex=True)
    return (
        fft.fft(x), fft.fft(z, norm="ortho"), fft.ifft(x), fft.ifft(z, dim=1, norm="forward"),
        fft.rfft(x, dim=0), fft.irfft(z), fft.irfft(z, n=11, dim=1), fft.hfft(z, n=9), fft.ihfft(x, norm="ortho"),
        fft.fft2(z), fft.ifft2(z), fft.rfft2(x, norm="ortho"), fft.irfft2(z, s=(5, 8)), fft.fftn(x), fft.ifftn(z),
        fft.rfftn(x, s=(6, 13)), fft.irfftn(z), fft.hfft2(z), fft.ihfftn(x), fft.fftshift(fft.fft(x)),
        fft.fft(z.transpose(1, 2), n=20), fft.rfft(x.double()), frames,
        torch.istft(frames, 16, 6, window=window, length=x[0].numel()),
        torch.stft(x.flatten(1).double(), 10, return_complex=True, center=False, onesided=False, window=torch.ones(10)),
    )  # fmt: skip


def call(batch: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 7, 12), torch.randn(batch, 7, 12, dtype=torch.complex64)


def test_transforms(build: Build) -> None:
    torch.manual_seed(0)
    batch = Dim("batch", min=1, max=32)
    archive = build(transforms, call(3), dynamic_shapes={"x": {0: batch}, "z": {0: batch}})
    for count in (3, 1, 10):
        x, z = call(count)
        expected = transforms(x, z)
        got = archive(x, z)
        assert_close(got, expected, 1e-5)
        for number, (a, b) in enumerate(zip(got, expected, strict=True)):
            assert a.shape == b.shape, number
    x, z = call(6)
    x, z = x[::2], z.transpose(0, 1).contiguous().transpose(0, 1)[1:4]
    assert_close(archive(x, z), transforms(x, z), 1e-5)

    # Plans are shared by all contexts of a module.
    def run(seed: int) -> None:
        context = archive.context(num_threads=1)
        inputs = call(2 + seed % 5)
        for _ in range(3):
            assert_close(context(*inputs), transforms(*inputs), 1e-5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(8)))
