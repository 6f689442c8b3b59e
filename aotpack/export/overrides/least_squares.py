"""`torch.linalg.lstsq`, which torch cannot trace: sizes of its results depend on the driver, some on values.

Calls of it become factorizations: for the driver gels, which takes full rank for granted, a QR; for the others, which
find the solution of least norm, the pseudoinverse. Both have gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.errors import CaptureError
from aotpack.export.ops.linalg import check_errors
from aotpack.export.overrides.table import overrides

_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@overrides(torch.linalg.lstsq)
def _lstsq(
    input: Tensor, b: Tensor | None = None, rcond: Any = None, *, driver: str | None = None, **kwargs: Any
) -> Any:
    b = kwargs.pop("B", b)
    driver = driver or "gelsy"
    if kwargs or b is None or driver not in _DRIVERS:
        raise CaptureError(f"torch.linalg.lstsq cannot be captured with these arguments: driver={driver!r}")
    vectors = b.dim() == input.dim() - 1 and tuple(b.shape) == tuple(input.shape[:-1])
    sides = b.unsqueeze(-1) if vectors else b
    m, n = input.shape[-2], input.shape[-1]
    none = input.new_empty(0, dtype=input.dtype.to_real())
    rank, values = torch.empty(0, dtype=torch.int64, device=input.device), none
    if driver == "gels":
        solution = _full_rank(input, sides)
    else:
        cutoff = rcond if rcond is not None else torch.finfo(input.dtype).eps * torch.sym_max(m, n)
        # Column-major, as LAPACK leaves it.
        solution = (_pseudoinverse(input, cutoff) @ sides).mT.contiguous().mT
        found = torch.linalg.svdvals(input.detach())
        greatest = found.amax(-1, keepdim=True) if 0 not in (m, n) else found.new_zeros((*found.shape[:-1], 1))
        rank = (found > cutoff * greatest).sum(-1)
        if driver != "gelsy":
            values = found
    residuals = none
    if m > n and driver != "gelsy":
        residuals = (input @ solution - sides).abs().square().sum(-2)
        if driver != "gels":
            if input.dim() != 2:
                raise CaptureError(
                    f"the residuals of torch.linalg.lstsq with driver={driver!r} have a shape that depends on values",
                    hint="compute the residuals of a batch by hand, and use driver='gelsy'",
                )
            # Only where the rank is full.
            residuals = residuals.masked_select((rank == n).expand(residuals.shape))
    if vectors:
        solution = solution.squeeze(-1)
    return torch.return_types.linalg_lstsq((solution, residuals, rank, values))  # type: ignore[attr-defined]


def _pseudoinverse(a: Tensor, cutoff: Any) -> Tensor:
    tolerance = (
        cutoff if isinstance(cutoff, Tensor) else torch.full((), cutoff, dtype=a.dtype.to_real(), device=a.device)
    )
    inverse: Tensor = torch.linalg.pinv(a, rtol=tolerance)
    return inverse


def _full_rank(a: Tensor, b: Tensor) -> Tensor:
    tall = a.shape[-2] >= a.shape[-1]
    q, r = torch.linalg.qr(a if tall else a.mH)
    zero = r.detach().diagonal(dim1=-2, dim2=-1) == 0
    if zero.shape[-1] > 0:
        first = zero.to(torch.int32).argmax(-1).to(torch.int32) + 1
        info = torch.where(zero.any(-1), first, torch.zeros_like(first))
        check_errors(info, "torch.linalg.lstsq", a.dim() == 2)
    solution: Tensor
    if tall:
        solution = torch.linalg.solve_triangular(r, q.mH @ b, upper=True)
    else:
        solution = q @ torch.linalg.solve_triangular(r.mH, b, upper=False)
    return solution
