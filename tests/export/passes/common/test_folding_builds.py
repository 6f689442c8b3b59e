"""Archives of models that the folding passes change: what is generated behind slices and folded weights is right."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from tests.export.conftest import Build, check
from tests.export.pass_checks import batch_norm


class Decoder(nn.Module):
    """A layer with grouped attention from separate projections, gates, layer scales, and a tied table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(700, 32)
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 16, bias=False), nn.Linear(32, 16)
        self.out, self.norm = nn.Linear(32, 32), nn.LayerNorm(32)
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((32, 72), (32, 72), (72, 32)))
        self.scale = nn.Parameter(torch.rand(32) + 0.5)
        self.matrix, self.offset = nn.Parameter(torch.randn(32, 32) / 8), nn.Parameter(torch.randn(32))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        b, s, d = x.shape
        q, k, v = (p(x).view(b, s, -1, 8).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, d)) * self.scale
        z = self.norm(x)
        x = x + self.down(F.silu(self.gate(z)) * self.up(z)) / 3
        rows = torch.addmm(self.offset, x.view(-1, d), self.matrix).view(b, s, d)
        x = x + 0.5 * rows * (1 + torch.tanh(0.7978845608028654 * (rows + 0.044715 * rows**3)))
        return x @ self.table.weight.t()


class Vision(nn.Module):
    """Norms before and behind convolutions, one that two norms read, one that is called twice, one that is padded."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3)
        self.one, self.two, self.three = batch_norm(4), batch_norm(4), batch_norm(4)
        self.shared = nn.Sequential(nn.Conv2d(6, 6, 1), batch_norm(4))
        self.scale = nn.Parameter(torch.rand(6, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(F.pad(x, (1, 1, 1, 1)))
        y = F.relu(self.one(y)) + self.two(y)
        y = self.shared(self.shared(F.relu(self.three(y)))) * self.scale + y
        return y.flatten(1)


def test_a_decoder_layer(build: Build) -> None:
    model = Decoder().eval()
    shapes = {"tokens": {0: Dim("n", max=8), 1: Dim("length", max=64)}}
    calls = [(torch.randint(0, 700, sizes),) for sizes in ((2, 5), (1, 1), (3, 17))]
    archive = build(model, calls[0], dynamic_shapes=shapes)
    check(archive, model, *calls)


def test_a_vision_model(build: Build) -> None:
    model = Vision().eval()
    check(build(model, (torch.randn(2, 3, 8, 9),)), model, (torch.randn(2, 3, 8, 9),))


def test_under_autocast(build: Build) -> None:
    inner = Vision().eval()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.inner(x).float()

    x = torch.randn(2, 3, 8, 9)
    with torch.no_grad():
        expected = inner.double()(x.double())
        inner.float()
        scale = expected.abs().max()
        got = torch.as_tensor(build(Model().eval(), (x,))(x))
    assert ((got.double() - expected).abs().max() / scale).item() < 5e-2
