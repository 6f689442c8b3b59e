"""Fourier transforms and views of complex tensors."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tests.odd_inputs.harness import Case
from tests.odd_inputs.tensors import around, values

aten, ours = torch.ops.aten, torch.ops.aotpack
_CPU = "aoti_torch_cpu_"
_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


def cases() -> Iterator[Case]:
    for real, cplx in _COMPLEX.items():
        for sizes in around(3, 7, 10, zeros=(0,)):
            x, z = values(*sizes, dtype=real), values(*sizes, dtype=cplx)
            for dims in ([2], [1, 2], [0, 1, 2]):
                for order in ([0, 1, 2], [1, 2, 0]):
                    if all(sizes[d] for d in dims):
                        yield Case(f"{_CPU}fft_c2c", ours.fft_c2c, (z, dims, 1, True, order))
                        yield Case(f"{_CPU}fft_r2c", ours.fft_r2c, (x, dims, 0, True, order))
                        yield Case(f"{_CPU}fft_r2c", ours.fft_r2c, (x, dims, 2, False, order))
                        yield Case(f"{_CPU}fft_c2r", ours.fft_c2r, (z, dims, 2, 2 * sizes[dims[-1]] - 1, order))
            yield Case(f"{_CPU}complex_cumprod", ours.complex_cumprod, (z, 1))
            for dim in (0, 1, -1):
                yield Case(f"{_CPU}complex_logcumsumexp", _logcumsumexp, (z, dim))
            yield Case(f"{_CPU}permute", aten.permute, (z, [2, 0, 1]))
            yield Case(f"{_CPU}complex_store", torch.clone, (z,))
            yield Case(f"{_CPU}view_as_real", aten.view_as_real, (z,))
    pairs = values(4, 3, 2)
    yield Case(f"{_CPU}view_as_complex", aten.view_as_complex, (pairs,))


def _logcumsumexp(z: Tensor, dim: int) -> Tensor:
    return torch.logcumsumexp(z.to(torch.complex128), dim).to(z.dtype)
