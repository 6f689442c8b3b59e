"""Losses over scans, maps and branches, for test_gradients.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as over_rows
from torch._higher_order_ops.scan import scan
from torch.utils.checkpoint import checkpoint


class Cell(nn.Module):
    """Weights of a recurrent cell; the inputs are (steps, batch, 3) and (batch, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.i, self.h, self.r = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def next(self, h: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(self.i(x) + self.h(h))


class Carries(Cell):
    """A carry of a float, one of no dim and one of an integer, results of each kind, and a closure over a value."""

    def forward(self, xs: Tensor, init: Tensor) -> Tensor:
        gate = self.r(init).sigmoid()

        def step(carry: tuple[Tensor, ...], x: Tensor) -> Any:
            h = self.next(carry[0] * carry[1], x) * gate * carry[2]
            results = (h * 2, h.sum(-1) / x.shape[0], h > 0, carry[2] * 2)
            return (h, carry[1] * 0.9 + h.mean(), carry[2] + 1), results

        start = (init, xs.new_ones(()), torch.ones((), dtype=torch.int64))
        carry, (a, b, c, d) = scan(step, start, xs)
        return carry[0].sum() * carry[1] + (a.pow(2) * c).sum() + b.sin().sum() + d.sum() * carry[2]


class Backwards(Cell):
    """Over another dim, in reverse order."""

    def forward(self, xs: Tensor, init: Tensor) -> Tensor:
        def step(h: Tensor, x: Tensor) -> Any:
            h = self.next(h, x)
            return h, h * 2

        h, ys = scan(step, init, xs.transpose(0, 1), dim=1, reverse=True)
        weights = torch.arange(1, ys.shape[1] + 1, dtype=ys.dtype)
        return h.sum() + (ys.pow(2) * weights[None, :, None]).sum()


class NoGradients(Cell):
    """A carry without a gradient at the start, one that results do not depend on, and weights as sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(3, 4, 4) * 0.3), nn.Parameter(torch.randn(3, 4))

    def forward(self, xs: Tensor, init: Tensor) -> Tensor:
        def layer(carry: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor]) -> Any:
            h = (carry[0] @ weights[0] + weights[1]).tanh()
            return (h, carry[1] + h.detach()), h.argmax(-1)

        (h, _), _ = scan(layer, (torch.zeros_like(init), torch.zeros_like(init)), (self.w, self.b))
        return (h * init).sum() + self.i(xs).sum()


class Nested(Cell):
    """A branch, a map and a scan in a scan."""

    def forward(self, xs: Tensor, init: Tensor) -> Tensor:
        def step(h: Tensor, x: Tensor) -> Any:
            mapped = over_rows(lambda row: self.i(row).sin(), x)
            h = torch.cond(
                x.sum() > 0, lambda h, m: (m + self.h(h)).tanh(), lambda h, m: self.r(h) * m.mean(), (h, mapped)
            )
            last, rows = scan(lambda c, row: (self.r(c).tanh() + row, c * row), h.sum(0), h)
            return h, last + rows.mean(0)

        h, ys = scan(step, init, xs)
        return h.sum() + ys.pow(2).sum()


class InBranch(Cell):
    """A scan and a mean over all sizes in branches, whose gradients have other layouts."""

    def forward(self, xs: Tensor, init: Tensor) -> Tensor:
        def scanned(xs: Tensor, init: Tensor) -> Tensor:
            h, ys = scan(lambda h, x: (self.next(h, x), h * 2), init, xs)
            return h.sum() + ys.pow(2).sum()

        loss: Tensor = torch.cond(xs.sum() > 0, scanned, lambda xs, init: self.r(init).sum() * xs.mean(), (xs, init))
        return loss + torch.cond(init.sum() > 0, lambda x: x.sum(), lambda x: x.pow(2).mean((0, 1)).sum(), (xs,))


class Maps(Cell):
    """A branch and a scan in a map, whose length is dynamic."""

    def forward(self, xs: Tensor, init: Tensor) -> Tensor:
        def row(x: Tensor) -> Tensor:
            y: Tensor = torch.cond(x.sum() > 0, lambda x: self.h(self.i(x)).sin(), lambda x: self.i(x) * 2, (x,))
            h, ys = scan(lambda h, x: (self.r(h).tanh() + x, h * x), init[0], y)
            return h.sum() + ys.sum() + init.sum()

        return over_rows(row, xs).pow(2).mean()  # type: ignore[no-any-return]


class Checkpointed(Cell):
    def forward(self, xs: Tensor, init: Tensor) -> Tensor:
        h: Tensor = checkpoint(lambda x: self.h(self.i(x).relu()).tanh(), xs, use_reentrant=False)
        return h.pow(2).sum() + self.r(init).sum()


class Associative(Cell):
    """The sizes are static: torch runs the function under vmap."""

    def forward(self, xs: Tensor, init: Tensor) -> Tensor:
        a = self.i(xs).sigmoid()
        results = associative_scan(
            lambda left, right: (left[0] * right[0], right[0] * left[1] + right[1]),
            (a, self.r(a)),
            0,
            combine_mode="generic",
        )
        return results[1].pow(2).sum() + self.h(init).sum()  # type: ignore[no-any-return]


LOSSES = (Carries, Backwards, NoGradients, Nested, InBranch, Maps, Checkpointed)


class Together(nn.Module):
    """All losses in one archive. Inputs are scaled, so that gradients of one do not hide those of another."""

    def __init__(self) -> None:
        super().__init__()
        self.losses = nn.ModuleList(loss() for loss in LOSSES)

    def forward(self, xs: Tensor, init: Tensor) -> Any:
        values = [loss(xs, init) for loss in self.losses]
        return sum(values), torch.stack(values)


class Dropped(Cell):
    """Dropout in a function whose gradient computes it once more."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def forward(self, xs: Tensor, init: Tensor) -> Tensor:
        def dropped(x: Tensor) -> Tensor:
            return F.dropout(self.i(x), 0.5, training=True)

        if self.place == "map":
            return over_rows(dropped, xs).pow(2).sum()  # type: ignore[no-any-return]
        if self.place == "cond":
            return torch.cond(xs.sum() > 0, dropped, lambda x: self.i(x), (xs,)).pow(2).sum()  # type: ignore[no-any-return]
        return scan(lambda h, x: (self.h(h) + dropped(x), h * 2), init, xs)[1].pow(2).sum()  # type: ignore[no-any-return]


class Checked(Cell):
    """Dropout in a checkpoint: its gradient needs the mask of the forward."""

    def forward(self, xs: Tensor, init: Tensor) -> Any:
        y: Tensor = checkpoint(lambda x: F.dropout(x, 0.5, training=True), xs, use_reentrant=False)
        return (y * self.i.weight.sum()).sum(), y
