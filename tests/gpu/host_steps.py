"""Models that compute on the GPU and, in between, on the host: operators without a GPU kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import aotpack
from tests.gpu.cases import Case


class LowRank(nn.Module):
    """Linear, SVD, linear. The signs of singular vectors cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 12), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        u, s, vh = torch.linalg.svd(self.first(x), full_matrices=False)
        result: Tensor = self.last((u * s.relu()) @ vh)
        return result


class Sampling(nn.Module):
    """Logits, of which all but the greatest 20 are masked, as probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(32, 3000)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(hidden)
        least, places = logits.topk(20)
        return logits.masked_fill(logits < least[:, -1:], -torch.inf).softmax(-1), places.sort(-1)[0]


class Selected(nn.Module):
    """Rows by a mask that the model computes: a size that depends on data, on the GPU and on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.last = nn.Linear(16, 1), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        keep = self.score(x).squeeze(1) > 0
        return self.last(x[keep]), keep.nonzero().float() * 2


def _transposed(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """Results that CUDA's own kernels have transposed."""
    vh = torch.linalg.svd(mask)[2]
    return torch.combinations(x, 2, with_replacement=True) * 2, (mask > 0).nonzero() + 1, (vh * 2).abs()


def _spectrum(x: Tensor) -> Any:
    return torch.fft.irfft(torch.fft.rfft(x * 2, n=64) * 0.5, n=64).relu()


def _solved(a: Tensor, b: Tensor) -> Any:
    return torch.linalg.solve(a @ a.mT + 4 * torch.eye(8), b) + torch.linalg.cholesky(a @ a.mT + 4 * torch.eye(8))


def _masked(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    y = x + 1
    return torch.masked_select(y, mask) * 2, y[mask].exp(), y.masked_scatter(mask, x.flatten()) - 1


def _counts(x: Tensor) -> tuple[Tensor, ...]:
    values, inverse, counts = torch.unique(x * 3, return_inverse=True, return_counts=True)
    return values, inverse + 1, counts, torch.bincount(x)


def _integers(a: Tensor, b: Tensor) -> Tensor:
    return (a + 1) @ (b * 2) - 3


def _gradients(q: Tensor, k: Tensor, v: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    """Those of attention: the operator on the host reads what its forward returned, in a parameter named `out`."""
    operands = [x.detach().requires_grad_() for x in (q * 2, k, v)]
    y = nn.functional.scaled_dot_product_attention(*operands)
    return torch.autograd.grad(y, operands, gradient)


def _spectrum_gradients(x: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(torch.view_as_real(torch.fft.rfft(x * 2)), (x,), gradient)


def _state() -> nn.Module:
    class Ranks(nn.Module):
        """State that a host step writes to, between calls."""

        rows: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(8, 4))

        def forward(self, mask: Tensor, x: Tensor) -> Tensor:
            self.rows[mask.nonzero()[:, 0]] = x.cumsum(0)[: mask.sum().item()]
            return self.rows * 2

    return Ranks()


def host_steps() -> dict[str, Callable[[], Case]]:
    """By name, a function that makes a model, its example inputs and its dynamic shapes."""
    randn = torch.randn
    rows = {"x": {0: aotpack.Dim("rows", 1, 64)}}
    mask = torch.tensor([True, False, True, True, False, True, False, False])
    queries, keys = (2, 4, 3, 8), (2, 4, 6, 8)
    # Heads of a size that is not known remain on the host.
    dims = {name: {3: aotpack.Dim("dim", 2, 64)} for name in ("q", "k", "v", "gradient")}
    return {
        "host-svd": lambda: (LowRank().eval(), (randn(9, 16),), None),
        "host-svd-dynamic": lambda: (LowRank().eval(), (randn(9, 16),), rows),
        "host-topk": lambda: (Sampling().eval(), (randn(4, 32),), None),
        "host-rows": lambda: (Selected().eval(), (randn(20, 16),), rows),
        "host-fft": lambda: (_spectrum, (randn(3, 64),), None),
        "host-solve": lambda: (_solved, (randn(8, 8), randn(8, 8)), None),
        "host-masks": lambda: (_masked, (randn(6, 7), torch.rand(6, 7) < 0.5), None),
        "host-strides": lambda: (_transposed, (randn(5), randn(3, 4)), None),
        "host-unique": lambda: (_counts, (torch.randint(0, 9, (40,)),), None),
        "host-integers": lambda: (_integers, (torch.randint(0, 9, (4, 5)), torch.randint(0, 9, (5, 3))), None),
        "host-sort": lambda: (lambda x: (x * 2).sort(-1)[0] + 1, (randn(4, 6000),), None),
        "host-columns": lambda: (lambda x: (x.mT[::2] * 2).sort(0)[0] + 1, (randn(40, 6000),), None),
        "host-gradients": lambda: (_gradients, (randn(queries), randn(keys), randn(keys), randn(queries)), dims),
        "host-spectrum-gradients": lambda: (_spectrum_gradients, (randn(4, 8), randn(4, 5, 2)), None),
        "host-state": lambda: (_state(), (mask, randn(4, 4)), None),
        "host-complex": lambda: (lambda a, b: (a * b + 1).exp(), (randn(9) + 1j * randn(9), randn(9) * 1j), None),
    }
