"""Families of operators through archives, compared with eager in double precision. One archive a family."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from tests.export.conftest import Build, assert_close, check


class Many(nn.Module):
    """Applies several modules to one input."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: part(x) for name, part in self.parts.items()}


def test_linears(build: Build) -> None:
    model = Many(
        plain=nn.Linear(40, 70),
        no_bias=nn.Linear(40, 1, bias=False),
        relu=nn.Sequential(nn.Linear(40, 33), nn.ReLU()),
        gelu=nn.Sequential(nn.Linear(40, 64), nn.GELU(), nn.Linear(64, 5), nn.GELU(approximate="tanh")),
        silu=nn.Sequential(nn.Linear(40, 32), nn.SiLU(), nn.Linear(32, 31), nn.Sigmoid()),
        hard=nn.Sequential(nn.Linear(40, 16), nn.Hardswish(), nn.Linear(16, 16), nn.ReLU6(), nn.Hardsigmoid()),
        tanh=nn.Sequential(nn.Linear(40, 100), nn.Tanh()),
    ).eval()
    archive = build(
        model, (torch.randn(2, 7, 40),), dynamic_shapes={"x": {0: Dim("batch", max=300), 1: Dim("length", max=50)}}
    )
    shapes = [(2, 7), (1, 1), (300, 1), (3, 50), (0, 4)]
    check(archive, model, *[(torch.randn(*shape, 40),) for shape in shapes])


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(24, 48), nn.Linear(48, 24)
        self.a, self.b = nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = x + self.second(F.relu(self.first(x)))
        both = F.relu(self.a(x) + self.b(x))
        shared = self.a(y)
        return y, both, shared + shared.relu()


def test_residuals(build: Build) -> None:
    model = Residual().eval()
    check(build(model, (torch.randn(5, 24),)), model, (torch.randn(5, 24),), (torch.randn(5, 24) * 100,))


def test_convolutions_2d(build: Build) -> None:
    model = Many(
        plain=nn.Conv2d(16, 40, 3),
        padded=nn.Conv2d(16, 8, 5, padding=2, bias=False),
        strided=nn.Conv2d(16, 64, 3, stride=2, padding=1),
        pointwise=nn.Conv2d(16, 33, 1),
        pointwise_strided=nn.Conv2d(16, 32, 1, stride=2),
        dilated=nn.Conv2d(16, 20, 3, padding=2, dilation=2),
        grouped=nn.Conv2d(16, 24, 3, padding=1, groups=4),
        depthwise=nn.Conv2d(16, 16, 3, padding=1, groups=16),
        depthwise_7=nn.Sequential(nn.Conv2d(16, 16, 7, padding=3, groups=16), nn.BatchNorm2d(16), nn.ReLU()),
        multiplier=nn.Conv2d(16, 32, 3, groups=16),
        same=nn.Conv2d(16, 4, (4, 3), padding="same"),
        uneven=nn.Conv2d(16, 7, (1, 5), padding=(0, 4), stride=(2, 1)),
        transposed=nn.ConvTranspose2d(16, 12, 2, stride=2),
        transposed_padded=nn.ConvTranspose2d(16, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        normed=nn.Sequential(nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU6()),
        transposed_normed=nn.Sequential(nn.ConvTranspose2d(16, 8, 2, groups=4), nn.BatchNorm2d(8)),
    ).eval()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2.0)
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    x = torch.randn(2, 16, 13, 11)
    archive = build(model, (x,), dynamic_shapes={"x": {0: Dim("batch", min=1, max=8)}})
    check(
        archive,
        model,
        (x,),
        (torch.randn(1, 16, 13, 11),),
        (torch.randn(3, 16, 13, 11).to(memory_format=torch.channels_last),),
        (torch.randn(2, 32, 13, 11)[:, ::2],),
    )


def test_convolutions_1d_and_3d(build: Build) -> None:
    one = Many(
        plain=nn.Conv1d(6, 10, 3, padding=1),
        dilated=nn.Conv1d(6, 40, 5, dilation=3, stride=2),
        depthwise=nn.Conv1d(6, 6, 4, groups=6),
        transposed=nn.ConvTranspose1d(6, 9, 4, stride=3),
    ).eval()
    check(build(one, (torch.randn(2, 6, 40),)), one, (torch.randn(2, 6, 40),))
    three = Many(
        plain=nn.Conv3d(4, 5, 3, padding=1),
        strided=nn.Conv3d(4, 33, (1, 2, 3), stride=(2, 1, 2)),
        depthwise=nn.Conv3d(4, 4, 3, groups=4),
        transposed=nn.ConvTranspose3d(4, 3, 2, stride=2),
    ).eval()
    check(build(three, (torch.randn(2, 4, 6, 7, 8),)), three, (torch.randn(2, 4, 6, 7, 8),))


class ConvolutionPlaces(nn.Module):
    """Convolutions where layouts matter: residuals, views, pooling, unbatched input, computed weights."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8 * 16, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.relu(self.a(x) + x)
        pooled = F.max_pool2d(y, 2)
        logits = self.head(pooled.flatten(1))
        unbatched = self.b(x[0])
        computed = F.conv2d(x, self.b.weight * x.mean(), padding=1)
        viewed = self.b(y).view(x.shape[0], 4, 2, 64).transpose(1, 2)
        strided = torch.as_strided(self.a(x).contiguous(), (2, 8), (512, 64))
        return y, pooled, logits, unbatched, computed, viewed, F.interpolate(y, scale_factor=2), strided


def test_layouts_around_convolutions(build: Build) -> None:
    model = ConvolutionPlaces().eval()
    x = torch.randn(2, 8, 8, 8)
    archive = build(model, (x,))
    check(archive, model, (x,), (torch.randn(2, 8, 8, 8),))
    with torch.no_grad():
        # The last one is no dense tensor in eager; ours is.
        for actual, expected in list(zip(archive(x), model(x), strict=True))[:-1]:
            assert actual.stride() == expected.stride()


class Attentions(nn.Module):
    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor, added: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        sdpa = F.scaled_dot_product_attention
        return (
            sdpa(q, k, v),
            sdpa(q, q, q, is_causal=True),
            sdpa(q, k, v, keep),
            sdpa(q, k, v, added, scale=0.3),
            sdpa(q, k[:, :2], v[:, :2], enable_gqa=True),
            sdpa(q.transpose(1, 2), q.transpose(1, 2), q.transpose(1, 2)),
        )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_attention(build: Build, dtype: torch.dtype, tolerance: float) -> None:
    def call(batch: int, length: int, keys: int) -> tuple[torch.Tensor, ...]:
        q = torch.randn(batch, 4, length, 16, dtype=dtype)
        k = torch.randn(batch, 4, keys, 16, dtype=dtype)
        keep = torch.rand(batch, 1, length, keys) > 0.3
        keep[..., 0] = True
        return q, k, torch.randn(batch, 4, keys, 16, dtype=dtype), keep, torch.randn(1, 4, length, keys, dtype=dtype)

    batch, length, keys = Dim("batch", max=8), Dim("length", max=200), Dim("keys", max=300)
    shapes = {
        "q": {0: batch, 2: length},
        "k": {0: batch, 2: keys},
        "v": {0: batch, 2: keys},
        "keep": {0: batch, 2: length, 3: keys},
        "added": {2: length, 3: keys},
    }
    model = Attentions().eval()
    archive = build(model, call(2, 9, 12), dynamic_shapes=shapes)
    check(archive, model, call(2, 9, 12), call(3, 65, 130), call(1, 1, 300), tolerance=tolerance)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(20, 24, 2, bidirectional=True)
        self.lstm_first = nn.LSTM(20, 33, batch_first=True, bias=False)
        self.gru = nn.GRU(20, 17, 2, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, (h1, c1) = self.lstm(x.permute(1, 0, 2), (h, c))
        z, (h2, c2) = self.lstm_first(x)
        g, h3 = self.gru(x)
        return y, h1, c1, z, h2, c2, g, h3


def test_recurrent(build: Build) -> None:
    model = Recurrent().eval()

    def call(batch: int, steps: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(batch, steps, 20), torch.randn(4, batch, 24), torch.randn(4, batch, 24)

    batch, steps = Dim("batch", max=20), Dim("steps", max=64)
    shapes = {"x": {0: batch, 1: steps}, "h": {1: batch}, "c": {1: batch}}
    archive = build(model, call(3, 5), dynamic_shapes=shapes)
    check(archive, model, call(3, 5), call(1, 1), call(17, 64))


class Lookups(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 12, padding_idx=3)
        self.out = nn.Linear(12, 50, bias=False)
        self.out.weight = self.table.weight
        self.sums = nn.EmbeddingBag(30, 8, mode="sum")
        self.means = nn.EmbeddingBag(30, 8, mode="mean", padding_idx=-2)
        self.greatest = nn.EmbeddingBag(30, 8, mode="max", include_last_offset=True)

    def forward(self, ids: torch.Tensor, bag: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = self.out(self.table(ids))
        return logits, self.sums(bag, offsets), self.means(bag, offsets), self.greatest(bag, offsets), self.sums(ids)


def test_lookups_and_tied_weights(build: Build) -> None:
    model = Lookups().eval()
    ids = torch.randint(0, 30, (4, 6))
    bag, offsets = torch.randint(0, 30, (20,)), torch.tensor([0, 4, 4, 20])
    archive = build(model, (ids, bag, offsets))
    check(archive, model, (ids, bag, offsets), (torch.randint(0, 30, (4, 6)), bag, offsets))
    # The tied table is stored once, packed.
    names = [constant.name for constant in archive.manifest.constants if constant.nbytes >= 50 * 12 * 4]
    assert len(names) == 1


class Indexing(nn.Module):
    def forward(self, x: torch.Tensor, i: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = torch.arange(x.shape[0]).unsqueeze(1)
        zeros = torch.zeros_like(x)
        top = torch.topk(x, 3, dim=1)
        ordered = torch.sort(x, dim=0, descending=True, stable=True)
        return (
            x[rows, i],
            x.gather(1, i),
            zeros.scatter(1, i, x[:, :3].contiguous()),
            zeros.scatter_add(1, i, x[:, :3].contiguous()),
            zeros.scatter_reduce(1, i, x[:, :3].contiguous(), "amax", include_self=False),
            zeros.index_put((rows, i), x[:, :3].contiguous(), accumulate=True),
            zeros.index_add(1, i[0], x[:, :3].contiguous()),
            x.cumsum(1),
            x.cumsum(0),
            (x > 0).cumsum(1),
            torch.exp(-x.abs()).cumprod(0),
            top.values,
            top.indices,
            ordered.values,
            ordered.indices,
            x.argmax(1),
            x.masked_fill(m, 0.0),
            torch.where(m, x, -x).amax(0),
        )


def test_indexing_sorting_scans(build: Build) -> None:
    model = Indexing().eval()

    def call() -> tuple[torch.Tensor, ...]:
        index = torch.stack([torch.randperm(9)[:3] for _ in range(7)])
        return torch.randn(7, 9), index, torch.rand(7, 9) > 0.5

    archive = build(model, call())
    check(archive, model, call(), call())


class Matmuls(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            a @ b,
            torch.einsum("bij,bkj->bik", a, a),
            torch.baddbmm(a @ b, a, b, beta=0.5, alpha=2.0),
            torch.addmm(b[0, :1], a[0], b[0]),
            a[0].t() @ a[0],
            a.double() @ b.double(),
            (a * 10).long() @ (b * 10).long(),
        )


def test_products_of_computed_matrices(build: Build) -> None:
    model = Matmuls().eval()
    a, b = Dim("a", max=100), Dim("b", max=100)
    archive = build(
        model, (torch.randn(3, 5, 8), torch.randn(3, 8, 6)), dynamic_shapes={"a": {1: a, 2: b}, "b": {1: b}}
    )
    for rows, inner in ((5, 8), (1, 1), (100, 64)):
        x, y = torch.randn(3, rows, inner), torch.randn(3, inner, 6)
        with torch.no_grad():
            assert_close(archive(x, y), model(x, y), 1e-5)


def test_products_in_half_precision(build: Build) -> None:
    class Half(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return a.half() @ b.half(), (a.half() @ b.half()).float().sum(-1)

    a, b = torch.randn(3, 5, 40), torch.randn(3, 40, 6)
    with torch.no_grad():
        assert_close(build(Half().eval(), (a, b))(a, b), Half()(a, b), 2e-3)


def test_bfloat16_network(build: Build) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 10)
    )
    model = model.eval().bfloat16()
    archive = build(model, (torch.randn(2, 3, 8, 8).bfloat16(),))
    check(archive, model, (torch.randn(2, 3, 8, 8).bfloat16(),), tolerance=2e-2)


def test_pointwise_functions_do_not_need_libtorch(build: Build) -> None:
    class Pointwise(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            p = x.abs() + 0.1
            return (
                x.exp(), p.log(), x.sin(), x.cos(), x.tanh(), x.erf(), p.pow(1.7), p.sqrt(), p.rsqrt(), x.sigmoid(),
                x.expm1(), p.log1p(), x.atan(), torch.atan2(x, p), x.sinh(), p.lgamma(), x.softmax(-1), x.round(),
                F.layer_norm(x, (33,)), F.gelu(x), F.softplus(x), x.double().exp(), torch.fmod(x, 0.7), p.log2(),
            )  # fmt: skip

    model = Pointwise().eval()
    check(build(model, (torch.randn(6, 33),)), model, (torch.randn(6, 33),), (torch.randn(6, 33) * 5,), tolerance=1e-5)
