"""Models whose control flow depends on data: branches and loops are code of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.map import map as over_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import aotpack
from tests.gpu.cases import Case
from tests.gpu.user_kernels import scaled_add


class Branches(nn.Module):
    """Branches in branches, on values of the device and on a size, with weights, state and random numbers."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        def positive(x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
            y: Tensor = torch.cond(x.mean() > 0.5, lambda x: self.a(x), lambda x: self.b(x).relu(), (x,))
            return y, count + 1

        y, count = torch.cond(x.sum() > 0, positive, lambda x, c: (x * 2, c * 0.5), (x, self.count))
        self.count.copy_(count)
        z: Tensor = torch.cond(x.shape[0] > 2, lambda x: x.sort(0)[0], lambda x: x - 1, (x,))
        w: Tensor = torch.cond(x.sum() > 0, lambda x: x.cumsum(0), lambda x: torch.digamma(x.abs() + 1), (x,))
        return y + self.count, z, w


class Loops(nn.Module):
    """Loops whose length the host knows, and loops that the device ends."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, steps: Tensor) -> tuple[Tensor, ...]:
        rows = x.shape[0]
        # The host compares, and the device reads the counter.
        _, total, last = while_loop(
            lambda i, total, last: (i < rows) & (i != 7),
            lambda i, total, last: (i + 1, total * 0.5 + x.index_select(0, i.reshape(1))[0] * i, last + i),
            (torch.tensor(0), x.new_zeros(8), torch.zeros((), dtype=torch.int64)),
        )

        def step(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            even = torch.cond(i % 2 == 0, lambda y: self.layer(y).tanh(), lambda y: y * 0.5, (y,))
            _, inner = while_loop(lambda j, _: j < i, lambda j, z: (j + 1, z + 0.25), (torch.tensor(0), even))
            return i + 1, inner

        def goes_on(i: Tensor, y: Tensor) -> Tensor:
            return (i < steps) & (y.norm() > 1e-3)

        count, y = while_loop(goes_on, step, (torch.tensor(0), x))
        return total, last, count, y


class Scans(nn.Module):
    """A recurrent cell and a map over rows, of any length: no call waits for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.i, self.h, self.out = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, xs: Tensor, init: Tensor) -> tuple[Tensor, ...]:
        def step(carry: tuple[Tensor, Tensor], x: Tensor) -> Any:
            h = torch.tanh(self.i(x) + self.h(carry[0]))
            odd = torch.cond(carry[1] % 2 == 1, lambda h: h * 2, lambda h: h - 1, (h,))
            return (h, carry[1] + 1), (odd, h.sum(-1))

        (h, count), (hs, sums) = scan(step, (init, torch.zeros((), dtype=torch.int64)), xs)
        return h, count, hs, sums, over_rows(lambda row: self.out(row).relu() + row.max(), hs)


def chosen_kernels(x: Tensor) -> Tensor:
    """A kernel of the user in a branch of a loop."""

    def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, torch.cond(i % 2 == 0, lambda x: scaled_add(x, x, 0.25), lambda x: x - 1, (x,))

    result: Tensor = while_loop(lambda i, _: i < 3, step, (torch.tensor(0), x))[1]
    return result


def items(x: Tensor, half: Tensor, number: Tensor, n: int) -> tuple[Tensor, ...]:
    """Numbers of the device, of the caller, and sizes out of the data."""
    scaled = x * half.item() + number.item()
    kept = x[x[:, 0] > half]
    rows = kept.shape[0]
    chosen = torch.cond(kept.shape[0] > n, lambda x: x + 1, lambda x: x * 2, (x,))
    _, powers = while_loop(lambda i, _: i < n, lambda i, y: (i + 1, y * 1.5), (torch.tensor(0), x))
    return scaled, kept * rows, chosen, powers


class Noise(nn.Module):
    """Random numbers in each step and in a branch."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        drawn = scan(lambda c, x: (c + 1, torch.rand_like(x)), x.new_zeros(()), x)[1]
        return drawn, torch.cond(x.sum() > 0, lambda x: torch.rand_like(x), lambda x: -torch.rand_like(x), (x,))


def counted(x: Tensor, steps: int) -> Tensor:
    """A loop whose end the host knows."""
    result: Tensor = while_loop(lambda i, _: i < steps, lambda i, y: (i + 1, y * 1.001), (torch.tensor(0), x))[1]
    return result


def limited(x: Tensor, steps: Tensor) -> Tensor:
    """The same loop, which the device ends."""
    result: Tensor = while_loop(lambda i, _: i < steps, lambda i, y: (i + 1, y * 1.001), (torch.tensor(0), x))[1]
    return result


def calls(name: str) -> list[tuple[Any, ...]]:
    """Arguments that together take every path through a model without random numbers."""
    randn, rand = torch.randn, torch.rand
    if name == "flow-branches":
        return [(rand(3, 8),), (-rand(1, 8),), (rand(5, 8) * 0.1,), (torch.ones(2, 8),), (-rand(16, 8),)]
    if name == "flow-loops":
        sizes = ((3, 4), (1, 0), (9, 3), (16, 1))
        return [(randn(rows, 8), torch.tensor(steps)) for rows, steps in sizes]
    if name == "flow-scans":
        return [(randn(time, batch, 3), randn(batch, 4)) for time, batch in ((4, 2), (1, 1), (12, 5))]
    if name == "flow-generator":
        sizes = ((2, 3, 4), (1, 1, 11), (4, 5, 9), (3, 2, 0))
        return [(torch.randint(1, 37, (batch, prompt)), torch.tensor(new)) for batch, prompt, new in sizes]
    dtype = torch.float16 if name == "flow-items-float16" else torch.bfloat16
    numbers = ((0.1, 3), (-5.0, 0), (9.0, 1), (2.0**-130, 7), (2.0**-20, 2), (float("inf"), 2), (float("-inf"), 1))
    return [(randn(6, 4), torch.tensor(h).to(dtype), torch.tensor(2.5, dtype=torch.float64), n) for h, n in numbers]


def _items(dtype: torch.dtype) -> Case:
    dynamic = {"x": {0: aotpack.Dim("rows", 1, 16)}, "half": None, "number": None, "n": torch.export.Dim.DYNAMIC}
    args = (torch.randn(6, 4), torch.tensor(0.1, dtype=dtype), torch.tensor(2.5, dtype=torch.float64), 3)
    return items, args, dynamic


def _generator() -> Case:
    from transformers import LlamaConfig, LlamaForCausalLM

    from aotpack.export import Generator

    config = LlamaConfig(
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        hidden_size=16,
        intermediate_size=32,
        vocab_size=37,
        max_position_embeddings=16,
    )
    model = Generator(LlamaForCausalLM(config).eval(), 12, stop_tokens=(5,)).eval()
    dims = {0: aotpack.Dim("batch", 1, 4), 1: aotpack.Dim("prompt", 1, 11)}
    return model, (torch.randint(1, 37, (2, 3)), torch.tensor(4)), {"input_ids": dims, "max_new_tokens": None}


def control_flow() -> dict[str, Callable[[], Case]]:
    """By name, a function that makes a model, its example inputs and its dynamic shapes."""
    rows, time, batch = aotpack.Dim("rows", 1, 16), aotpack.Dim("time", 1, 12), aotpack.Dim("batch", 1, 5)
    return {
        "flow-branches": lambda: (Branches().eval(), (torch.rand(3, 8),), {"x": {0: rows}}),
        "flow-loops": lambda: (
            Loops().eval(),
            (torch.randn(3, 8), torch.tensor(4)),
            {"x": {0: rows}, "steps": None},
        ),
        "flow-scans": lambda: (
            Scans().eval(),
            (torch.randn(4, 2, 3), torch.randn(2, 4)),
            {"xs": {0: time, 1: batch}, "init": {0: batch}},
        ),
        "flow-user-kernel": lambda: (chosen_kernels, (torch.randn(3, 8),), {"x": {0: rows}}),
        "flow-items": lambda: _items(torch.bfloat16),
        "flow-items-float16": lambda: _items(torch.float16),
        "flow-counted": lambda: (counted, (torch.randn(8), 3), {"x": {}, "steps": torch.export.Dim.DYNAMIC}),
        "flow-limited": lambda: (limited, (torch.randn(8), torch.tensor(3)), None),
        "flow-noise": lambda: (Noise(), (torch.ones(3, 4),), None),
        "flow-generator": _generator,
    }
