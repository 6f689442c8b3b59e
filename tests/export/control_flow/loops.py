"""Loops, scans and maps for test_control_flow.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as over_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from aotpack import Dim
from tests.export.control_flow.cases import Linears, batch, case


def n(value: int) -> Tensor:
    return torch.tensor(value)


def start() -> Tensor:
    return torch.zeros((), dtype=torch.int64)


class Repeated(Linears):
    def forward(self, count: Tensor, x: Tensor) -> Any:
        def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, self.a(x).relu() + torch.tensor([1.0, 2.0, 3.0, 4.0]).to(x.dtype)

        return while_loop(lambda i, x: i < count, step, (start(), x))


def branch_in_a_loop(count: Tensor, x: Tensor) -> Any:
    def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, torch.cond(i % 2 == 0, lambda x: x * 1.5, lambda x: x - 1, (x,))

    return while_loop(lambda i, x: i < count, step, (start(), x))[1]


def loop_in_a_loop(count: Tensor, x: Tensor) -> Any:
    def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        inner = while_loop(lambda j, y: j <= i, lambda j, y: (j + 1, y * 0.5 + 1), (start(), x))
        return i + 1, inner[1] - 0.25

    return while_loop(lambda i, x: i < count, step, (start(), x))[1]


def until_it_converges(a: Tensor) -> Any:
    target = a @ a.T / (a @ a.T).norm() + torch.eye(4, dtype=a.dtype)

    def goes_on(i: Tensor, y: Tensor) -> Tensor:
        return ((y - target).abs().max() > 1e-3) & (i < 30)

    return while_loop(goes_on, lambda i, y: (i + 1, 0.5 * (y + target)), (start(), a.new_zeros(4, 4)))


def memory_of_a_loop(count: Tensor, x: Tensor) -> Any:
    """What the first loop returns is no longer read when the second one begins."""
    i, y = while_loop(lambda i, y: i < count, lambda i, y: (i + 1, y * 0.5), (start(), x))
    return over_rows_of(y + i.item())


def over_rows_of(x: Tensor) -> Any:
    """A loop as long as the input, which reads a row in each step."""

    def step(i: Tensor, total: Tensor, norm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        row = x.index_select(0, i.reshape(1))[0]
        return i + 1, total * 0.9 + row, norm + row.norm()

    return while_loop(lambda i, *_: i < x.shape[0], step, (start(), x.new_zeros(4), x.new_zeros(())))


class Cached(nn.Module):
    """Attention over a cache that a loop fills."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor, count: Tensor) -> Any:
        positions = torch.arange(8)

        def step(i: Tensor, x: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
            here = (positions == i)[None, :, None]
            k, v = torch.where(here, self.k(x), k), torch.where(here, self.v(x), v)
            mask = (positions <= i)[None, None, :]
            return i + 1, F.scaled_dot_product_attention(self.q(x), k, v, attn_mask=mask), k, v

        empty = x.new_zeros(2, 8, 8)
        return while_loop(lambda i, *_: i < count, step, (start(), x, empty, empty.clone()))


class Caches(nn.Module):
    """Loops that update rows of caches, which are inputs, results and read by others too."""

    def forward(self, count: Tensor, x: Tensor, given: Tensor) -> Any:
        fresh = x.new_zeros(2, 8, 4)

        def step(i: Tensor, x: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
            first = first.clone()
            first.index_copy_(1, i.reshape(1), x[:, None])
            second = second.index_add(1, i.reshape(1), x[:, None])
            return i + 1, x * 0.5 + first.sum(1) * 0.1 + second[:, 0] * 0.01, first, second

        _, y, first, second = while_loop(lambda i, *_: i < count, step, (start(), x, given, fresh))

        def again(i: Tensor, y: Tensor, both: Tensor, old: Tensor) -> tuple[Tensor, ...]:
            # What it was before is read after the update.
            new = both.index_copy(1, i.reshape(1), y[:, None])
            return i + 1, y + both.sum(1) * 0.1, new, old + new

        _, z, third, total = while_loop(lambda i, *_: i < count, again, (start(), y, given, first))
        return y, z, first, second, third, total, given * 2, fresh


class ConvolutionLoop(nn.Module):
    """A loop that carries a value in the layout of its convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inner = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor, count: Tensor) -> Any:
        y = self.stem(x).relu()
        other = (y.permute(0, 2, 3, 1) * 2).permute(0, 3, 1, 2)
        i, y = while_loop(
            lambda i, y: i < count, lambda i, y: (i + 1, self.inner(y).relu() * 0.5 + other), (start(), y)
        )
        return self.inner(y), i


class Counted(nn.Module):
    """Reads how many steps a loop made, from a counter that begins with a constant, and takes so many rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        steps = while_loop(lambda i, y: i < y.shape[0] - 1, lambda i, y: (i + 1, y * 1.5), (torch.tensor(0), x))[0]
        count = steps.item()
        torch._check(count >= 0)
        torch._check(count <= x.shape[0])
        # In memory the rows are not first: strides have the size as a factor.
        return self.linear(x[:count].transpose(0, 1).contiguous())


LOOPS = {
    "repeated": case(Repeated(), *((n(i), torch.randn(2, 4)) for i in (3, 0, 1, 9))),
    "branch": case(branch_in_a_loop, *((n(i), torch.randn(4)) for i in (5, 0, 31))),
    "loop": case(loop_in_a_loop, *((n(i), torch.randn(4)) for i in (4, 0, 1))),
    "converging": case(until_it_converges, (torch.randn(4, 4),), (torch.randn(4, 4) * 9,)),
    "memory": case(memory_of_a_loop, *((n(i), torch.randn(6, 4)) for i in (2, 0, 1))),
    "rows": case(over_rows_of, *((torch.randn(i, 4),) for i in (6, 1, 11)), dims=[{0: batch(11)}]),
    "caches": case(Caches(), *((n(i), torch.randn(2, 4), torch.randn(2, 8, 4)) for i in (3, 0, 8))),
    "cached": case(Cached(), *((torch.randn(2, 1, 8), n(i)) for i in (4, 1, 7))),
    "counted": case(Counted(), *((torch.randn(i, 3, 8),) for i in (6, 1, 11)), dims=[{0: batch(11)}]),
    "convolutions": case(ConvolutionLoop(), *((torch.randn(2, 3, 8, 8), n(i)) for i in (3, 0, 5))),
}


def recurrence(xs: Tensor, init: Tensor) -> Any:
    return scan(lambda c, x: (c * 0.5 + x, c.sum() + x), init, xs)


class ScannedCell(nn.Module):
    """A recurrent cell: the carry is two tensors, so are the results; length and batch are dynamic."""

    def __init__(self) -> None:
        super().__init__()
        self.i, self.h = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, xs: Tensor, init: Tensor) -> Any:
        def step(carry: tuple[Tensor, Tensor], x: Tensor) -> Any:
            h = torch.tanh(self.i(x) + self.h(carry[0]))
            return (h, carry[1] + 1), (h * 2, h.sum(-1))

        return scan(step, (init, xs.new_zeros(())), xs)


def backwards(x: Tensor) -> Any:
    return scan(lambda c, x: (c + x, c * x), x.new_zeros(3), x, dim=1, reverse=True)


def windows(x: Tensor, steps: Tensor) -> Any:
    """What it carries has a size that depends on one of the input's, which is itself no size of its arguments."""
    return scan(lambda c, _: (c * 0.5, c + 1), x[:, 2:].contiguous(), steps)


class Mapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Any:
        return over_rows(lambda row: self.linear(row).relu() + row.max(), x)


def mapped_pairs(a: Tensor, b: Tensor) -> Any:
    return over_rows(lambda pair: {"sum": (pair[0].sum() + pair[1], [pair[0] * 2])}, (a, b))


def associative(x: Tensor) -> Any:
    return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")


def associative_pairs(a: Tensor, b: Tensor) -> Any:
    return associative_scan(
        lambda left, right: (left[0] * right[0], right[0] * left[1] + right[1]), (a, b), 0, combine_mode="generic"
    )


_TIME, _BATCH = batch(12), batch(5)
SCANS = {
    "recurrence": case(recurrence, *((torch.randn(5, 3), torch.randn(3)) for _ in range(2))),
    "cell": case(
        ScannedCell(),
        *((torch.randn(t, b, 3), torch.randn(b, 4)) for t, b in ((5, 2), (1, 1), (12, 5))),
        dims=[{0: _TIME, 1: _BATCH}, {0: _BATCH}],
    ),
    "windows": case(
        windows,
        *((torch.randn(2, length), torch.randn(3)) for length in (7, 4, 40)),
        dims=[{1: Dim("length", min=3, max=64)}, None],
    ),
    "backwards": case(backwards, (torch.randn(3, 6),), (torch.randn(3, 6),)),
    "map": case(Mapped(), *((torch.randn(i, 3),) for i in (4, 1, 6)), dims=[{0: batch(6)}]),
    "map_of_pairs": case(mapped_pairs, *((torch.randn(4, 3), torch.randn(4, 2)) for _ in range(2))),
    "associative": case(associative, (torch.randn(6, 3),), (torch.randn(6, 3),)),
    "associative_pairs": case(associative_pairs, *((torch.rand(6, 3), torch.randn(6, 3)) for _ in range(2))),
}
