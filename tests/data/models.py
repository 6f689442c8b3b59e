"""The models of the frozen archives: small, and together they use every part of the format. Needs torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class MLP(nn.Module):
    """Linear layers, an activation, a normalization and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5), nn.Softmax(-1))

    def forward(self, x: Tensor) -> Tensor:
        """x: float32 [batch, 12] -> float32 [batch, 5]."""
        return self.layers(x)


class CNN(nn.Module):
    """Convolutions with batch norm for images of any even size; also returns the features, channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.mixer = nn.Sequential(nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8), nn.Conv2d(8, 8, 1), nn.SiLU())
        self.head = nn.Linear(8, 4)
        nn.init.uniform_(self.stem[1].running_mean, -0.5, 0.5)
        nn.init.uniform_(self.stem[1].running_var, 0.5, 2)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """image: float32 [batch, 3, height, width] -> logits [batch, 4], features [batch, 8, height/2, width/2]."""
        stem = self.stem(image)
        features = self.mixer(stem) + F.max_pool2d(stem, 2)
        return {"logits": self.head(features.mean((2, 3))), "features": features}


class Decoder(nn.Module):
    """One layer of attention with a cache of 16 positions as state, and two entries that share it."""

    VOCABULARY, WIDTH, HEADS, POSITIONS = 24, 16, 2, 16

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.places = nn.Embedding(self.POSITIONS, self.WIDTH)
        self.qkv = nn.Linear(self.WIDTH, 3 * self.WIDTH)
        self.out = nn.Linear(self.WIDTH, self.VOCABULARY)
        shape = (1, self.HEADS, self.POSITIONS, self.WIDTH // self.HEADS)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def prefill(self, ids: Tensor) -> Tensor:
        """ids: int64 [1, length] -> logits [1, length, vocabulary]; fills the cache from position 0."""
        length = ids.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        return self._attend(ids, torch.arange(length), 0, mask)

    def decode(self, token: Tensor, position: int) -> Tensor:
        """token: int64 [1, 1], the one at `position` -> logits [1, 1, vocabulary]."""
        mask = torch.ones(1, position + 1, dtype=torch.bool)
        return self._attend(token, torch.full((1,), position), position, mask)

    def _attend(self, ids: Tensor, positions: Tensor, start: int, mask: Tensor) -> Tensor:
        new = ids.shape[1]
        x = self.embedding(ids) + self.places(positions)
        q, k, v = (part.view(1, new, self.HEADS, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        self.keys.narrow(2, start, new).copy_(k)
        self.values.narrow(2, start, new).copy_(v)
        known = start + new
        attended = F.scaled_dot_product_attention(
            q, self.keys.narrow(2, 0, known), self.values.narrow(2, 0, known), attn_mask=mask
        )
        return self.out(x + attended.transpose(1, 2).reshape(1, new, self.WIDTH))


class Updatable(nn.Module):
    """What an update has to compute (a folded batch norm), tied weights, and state that is a weight as well."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.encode = nn.Linear(8, 6, bias=False)
        self.decode = nn.Linear(8, 6)
        self.decode.weight = self.encode.weight
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("unused", torch.arange(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x: float32 [batch, 4, 10] -> float32 [batch, 6], and the number of calls so far."""
        self.calls += 1
        h = torch.relu(self.norm(self.conv(x))).mean(-1)
        return torch.tanh(self.encode(h)) + self.decode(h), self.calls.clone()


class Pair(NamedTuple):
    """A result with named fields."""

    total: Tensor
    parts: list[Tensor]


class Entries(nn.Module):
    """Many kinds of arguments, results, sizes and dtypes, in four entries; all but one without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.5, -2.0, 0.25]))

    def numbers(self, x: Tensor, factor: float, count: int, flag: bool) -> dict[str, object]:
        """Numbers as arguments and results; x: float32 [n, 3]."""
        y = x * factor * self.scale + count + flag
        return {"y": y, "rows": x.shape[0], "twice": count * 2, "half": factor / 2, "flag": flag, "label": "fixed"}

    def chosen(self, x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
        """Sizes that are known only after the call, and a check of a value; x: float32 [n, 3], limit: int64 []."""
        n = limit.item()
        torch._check(n >= 0)
        torch._check(n <= x.shape[0], lambda: "limit exceeds the rows of x")
        return x[x[:, 0] > 0], x[:n].sum(0)

    def write(self, buffer: Tensor, step: Tensor) -> Tensor:
        """Writes to an argument, draws random numbers in [0, 1), of which nothing remains, and relates two dims.

        buffer: float32 [a], step: float32 [b], where b is at most a.
        """
        buffer.narrow(0, 0, step.shape[0]).add_(step)
        return buffer * 2 + torch.rand_like(buffer).floor()

    def nested(self, batch: dict[str, object], mask: Tensor | None = None) -> Pair:
        """Structures and several dtypes.

        batch: x: complex64 [a, b], ids: (int64 [a], int32 [b]), halves: [bfloat16 [a], float16 [a]]; mask: bool [a, b].
        """
        x, (rows, columns), (brain, half) = batch["x"], batch["ids"], batch["halves"]
        parts = [
            rows[:, None] * columns,
            (~mask).sum(0).to(torch.int16),
            torch.view_as_real(x).double().sum(-1),
            brain * 2,
            half + brain.to(torch.float16),
        ]
        return Pair(torch.where(mask, x, x.conj()) * 2, parts)


class Formula(nn.Module):
    """An int that must be what another input's size gives (since format 4)."""

    def forward(self, x: Tensor, double: int) -> Tensor:
        """x: float32 [n, 4], double: 2 * n -> float32 [2 * n, 2]."""
        return x.view(double, -1) + double


class Dtypes(nn.Module):
    """Unsigned and float8 dtypes, and keys that are ints (since format 5)."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.tensor([3, 70], dtype=torch.uint16))

    def forward(self, batch: dict[int, Tensor], low: Tensor) -> dict[int, Tensor]:
        """batch: 0: uint16 [n, 2], 7: uint32 [n, 2], 9: uint64 [n, 2]; low: float8_e4m3fn [n]."""
        wide = batch[0].to(torch.int64) + self.offset.to(torch.int64) + batch[7].to(torch.int64)
        return {
            1: wide.to(torch.uint32),
            -4: batch[9].clone(),
            2: (low.float() * 2).to(torch.float8_e5m2),
            3: batch[0].to(torch.float32) + low.float()[:, None],
        }


class Tally(nn.Module):
    """Adds how often it was called to an argument, in place."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, total: Tensor, hidden: Tensor) -> Tensor:
        """total: float32 [4], written to; hidden: float32 [batch, 8, side, side] -> float32 [batch, 8]."""
        self.calls += 1
        total += self.calls
        return hidden.mean((2, 3)) + self.calls


class Steps(nn.Module):
    """Two modules, which run as two steps of one entry, with a channels-last value between them (since format 6).

    Their names are those of the steps: the archive's state is `1.calls`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.add_module("0", nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()))
        self.add_module("1", Tally())

    def forward(self, total: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        """total: float32 [4], written to; image: float32 [batch, 3, side, side] -> float32 [batch, 8], the value."""
        hidden = self.get_submodule("0")(image)
        return self.get_submodule("1")(total, hidden), hidden


class Same(nn.Module):
    """Writes to two arguments, which may be one tensor, beside a weight (since format 9)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2))

    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """a, b: float32 [n, 3], written to; c: float32 [n, 3] -> float32 [n, 2]."""
        a.mul_(2)
        b.add_(1)
        return (a + b - c) @ self.weight
