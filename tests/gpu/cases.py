"""Small models that together use every kind of operator that GPUs have kernels for."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import aotpack

Case = tuple[Any, tuple[Any, ...], Any]


def _perceptron(dtype: torch.dtype) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(dtype).eval()


class _Cache(nn.Module):
    """State that a call writes to."""

    keys: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(16, 64))
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        self.keys.index_copy_(0, places, self.linear(x))
        return self.keys.softmax(-1) @ x.T


class _Step(nn.Module):
    """A step of text generation: one position, heads in groups, a cache that grows."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.pair, self.out = nn.Linear(64, 64), nn.Linear(64, 32), nn.Linear(64, 2048)
        self.last = nn.Linear(2048, 24)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> tuple[Tensor, ...]:
        q = self.query(x).view(1, 1, 4, 16).transpose(1, 2)
        k, v = self.pair(x).view(1, 1, 2, 2, 8).transpose(1, 3).unbind(2)
        keys, values = torch.cat((keys, k.repeat(1, 1, 1, 2)), 2), torch.cat((values, v.repeat(1, 1, 1, 2)), 2)
        repeated = (t[:, :, None].expand(1, 2, 2, -1, 16).reshape(1, 4, -1, 16) for t in (keys, values))
        y = F.scaled_dot_product_attention(q, *repeated, attn_mask=hidden)
        y = F.gelu(self.out(y.transpose(1, 2).reshape(1, 1, 64)))
        # Sums long enough to be divided: of one row, and of three.
        return F.silu(self.last(y)), F.relu(self.last(y.expand(1, 3, -1))), keys, values


def _step() -> Case:
    keys = aotpack.Dim("keys", 2, 1023)
    cache, hidden = torch.randn(2, 1, 2, 90, 16).half(), torch.arange(91).view(1, 1, 1, 91) < 70
    args = (torch.randn(1, 1, 64).half(), *cache, hidden)
    return _Step().half().eval(), args, {"x": {}, "keys": {2: keys}, "values": {2: keys}, "hidden": {3: keys + 1}}


def _batch(name: str) -> dict[str, Any]:
    return {name: {0: aotpack.Dim("batch", 1, 512)}}


def _perceptrons() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        args = (torch.randn(8, 64, dtype=dtype),)
        cases[f"mlp-{name}"] = (_perceptron(dtype), args, None)
        cases[f"mlp-{name}-dynamic"] = (_perceptron(dtype), args, _batch("input"))
    return cases


def _scatter(x: Tensor, i: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return x.scatter(1, i, v), x.index_add(0, i[:, 0], v), x.gather(1, i)


def _reductions(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(1), x.amax(0), x.std(), x.var(-1), x.argmax(1), x.logsumexp(1), x.sum()


def _casts(x: Tensor) -> tuple[Tensor, ...]:
    return x.half(), x.bfloat16(), x.int(), x.bool(), x.double()


def _products(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    return a @ b, b.mT @ a.mT, a @ c


def _complex_products(a: Tensor, b: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return a @ b, b.mH @ a.mH, a @ v, torch.einsum("bij,bik->jk", a, a.conj()), torch.baddbmm(a @ b, a, b, alpha=2)


def _attention(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> tuple[Tensor, ...]:
    attention = F.scaled_dot_product_attention
    return (
        attention(q, k, v),
        attention(q, k, v, is_causal=True),
        attention(q, k, v, hidden),
        attention(q, k, v, torch.where(hidden, -1e4, 0.5).to(q.dtype), scale=0.2),
        attention(q, k[:, :1], v[:, :1], enable_gqa=True),
        attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)),
    )


def _attentions() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for dtype, dims in (
        (torch.float64, (16,)),
        (torch.float32, (40, 128)),
        (torch.bfloat16, (64, 256)),
        (torch.float16, (40, 64)),
    ):
        for dim in dims:
            q, k, v = (torch.randn(2, 3, 100, dim, dtype=dtype) for _ in range(3))
            cases[f"attention-{dim}-{str(dtype)[6:]}"] = (_attention, (q, k, v, torch.rand(2, 1, 100, 100) < 0.5), None)
    length = aotpack.Dim("length", 1, 1024)
    q, k = torch.randn(1, 2, 37, 32), torch.randn(1, 2, 37, 32)
    dynamic = {"q": {2: length}, "k": {2: length}}
    cases["attention-dynamic"] = (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), (q, k), dynamic)
    q, k = torch.randn(1, 8, 1, 64).bfloat16(), torch.randn(1, 2, 300, 64).bfloat16()
    cases["attention-decode"] = (lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), (q, k), None)
    return cases


def _convolutions() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    layers: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "1d": (nn.Conv1d(20, 30, 3, padding=1), (2, 20, 50)),
        "first": (nn.Conv2d(3, 64, 7, stride=2, padding=3), (2, 3, 60, 60)),
        "3x3": (nn.Conv2d(64, 96, 3, padding=1), (2, 64, 14, 14)),
        "deep": (nn.Conv2d(512, 512, 3, padding=1), (1, 512, 7, 7)),
        "1x1": (nn.Conv2d(64, 130, 1), (2, 64, 14, 14)),
        "grouped": (nn.Conv2d(64, 32, 3, groups=4, dilation=2), (2, 64, 14, 14)),
        "depthwise": (nn.Conv2d(40, 80, 3, padding=1, groups=40), (2, 40, 14, 14)),
        "transposed": (nn.ConvTranspose2d(32, 24, 3, stride=2, padding=1, output_padding=1), (2, 32, 9, 9)),
        "3d": (nn.Conv3d(8, 16, 3, padding=1), (1, 8, 5, 6, 7)),
    }
    for name, (layer, shape) in layers.items():
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            cases[f"conv-{name}-{str(dtype)[6:]}"] = (
                deepcopy(layer).eval().to(dtype),
                (torch.randn(shape).to(dtype),),
                None,
            )
    return cases


class _Residual(nn.Module):
    """A block as ResNets have it, with pooling around it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.body = nn.Sequential(
            nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1)
        )
        self.head = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        result: Tensor = self.head(y + self.body(y))
        return result


def _resampling(x: Tensor) -> tuple[Tensor, ...]:
    return (
        F.interpolate(x, scale_factor=2.0),
        F.interpolate(x, size=(17, 13), mode="bilinear"),
        F.avg_pool2d(x, 3, 2, 1),
        F.max_pool2d(x, 3, 2, return_indices=True)[1],
        F.pad(x, (1, 2, 2, 1), mode="reflect"),
        F.adaptive_avg_pool2d(x, 3),
    )


class _Quantized(nn.Module):
    """Products with int8 weights of inputs that are quantized by row: few rows, and many."""

    weight: Tensor
    columns: Tensor
    scales: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (50, 200), dtype=torch.int8))
        self.register_buffer("columns", torch.randint(-128, 128, (256, 48), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(50) * 0.01)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return self._product(x, self.weight.mT) * self.scales, self._product(y, self.columns)

    def _product(self, x: Tensor, weight: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True).clamp(1e-8) / 127
        rows = (x / scale).round().clamp(-128, 127).to(torch.int8)
        return torch._int_mm(rows, weight) * scale


def _quantized() -> Case:
    shapes = {"x": {0: aotpack.Dim("few", 17, 40)}, "y": {0: aotpack.Dim("many", 17, 600)}}
    return _Quantized().eval(), (torch.randn(20, 200), torch.randn(150, 256)), shapes


class _Int8Weights(nn.Module):
    """Linear layers whose weights stay int8: scaled before the product, behind it, and by torch's operator."""

    up: Tensor
    down: Tensor
    scales: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Larger than what is folded into weights of the dtype of the rows.
        self.register_buffer("up", torch.randint(-128, 128, (512, 200), dtype=torch.int8))
        self.register_buffer("down", torch.randint(-128, 128, (200, 512), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(512, 1) * 1e-3)
        self.register_buffer("scale", torch.rand(200) * 1e-3)
        self.bias = nn.Parameter(torch.randn(512))

    def forward(self, x: Tensor, row: Tensor) -> tuple[Tensor, ...]:
        return *self._layers(x), *self._layers(row)

    def _layers(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.gelu(F.linear(x, self.up.to(x.dtype) * self.scales, self.bias))
        return F.linear(y, self.down.to(x.dtype)) * self.scale, torch.ops.aten._weight_int8pack_mm(
            y, self.down, self.scale
        )


def _int8_weights(dtype: torch.dtype) -> Case:
    model = _Int8Weights().to(dtype).eval()
    return (
        model,
        (torch.randn(20, 200).to(dtype), torch.randn(1, 200).to(dtype)),
        {"x": {0: aotpack.Dim("rows", 1, 300)}, "row": {}},
    )


def _vectors(a: Tensor, b: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return a @ v, v @ v, torch.inner(a, b), torch.tensordot(a, b, 1), torch.einsum("ij,kj->ik", a, b), torch.cdist(a, b)


def _device_dependent(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Operators that torch gives other results on GPUs (other sizes, dtypes and formulas), and one of which a part is
    composite.
    """
    half, scale = x.bfloat16(), w.bfloat16()
    return (
        *torch.native_batch_norm(x, w, b, b, w.abs(), False, 0.1, 1e-5),
        *torch.native_batch_norm(half, scale, None, None, None, True, 0.1, 1e-5),
        *torch.native_layer_norm(half, [6], scale, None, 1e-5),
        *torch.ops.aten.log_sigmoid_forward(x),
        torch._addmm_activation(b, x[:, :5], x[:5], use_gelu=True),
        torch.logaddexp(x, w),
    )


class _Bags(nn.Module):
    """Bags of a fixed length, and of lengths that depend on data."""

    def __init__(self) -> None:
        super().__init__()
        self.fixed = nn.EmbeddingBag(100, 32, mode="sum")
        self.mean = nn.EmbeddingBag(100, 20, mode="mean", padding_idx=3, include_last_offset=True)
        self.max = nn.EmbeddingBag(100, 20, mode="max")

    def forward(self, sparse: Tensor, indices: Tensor, offsets: Tensor) -> tuple[Tensor, ...]:
        return self.fixed(sparse), self.mean(indices, offsets), self.max(indices, offsets)


def _bags() -> Case:
    offsets = torch.tensor([0, 5, 5, 6, 30])
    shapes = {"sparse": {0: aotpack.Dim("batch", 0, 64)}, "indices": {0: aotpack.Dim("count", 0, 64)}, "offsets": {}}
    return _Bags().eval(), (torch.randint(0, 100, (7, 4)), torch.randint(0, 100, (30,)), offsets), shapes


class _Experts(nn.Module):
    """Rows that are sorted by the expert that computes them, and products of groups of columns and of sums."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(5, 96, 64) * 0.1), nn.Parameter(torch.randn(5, 48, 64) * 0.1)

    def forward(self, x: Tensor, ends: Tensor) -> tuple[Tensor, ...]:
        gate, up = torch._grouped_mm(x, self.up.transpose(1, 2), offs=ends).chunk(2, -1)
        y = torch._grouped_mm(F.silu(gate) * up, self.down, offs=ends)
        return y, torch._grouped_mm(x.t(), y, offs=ends), torch._grouped_mm(self.down, x.t(), offs=ends)


def _experts(dtype: torch.dtype) -> Case:
    rows = 8 * aotpack.Dim("eighths", 1, 100)
    ends = torch.tensor([3, 3, 60, 199, 200], dtype=torch.int32)
    return _Experts().to(dtype).eval(), (torch.randn(200, 64).to(dtype), ends), {"x": {0: rows}, "ends": {}}


def _selections(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Of few elements, which are sorted; and histograms, with elements beyond the bins and on their edges."""
    greatest, least = x.topk(5), x.topk(2, 1, largest=False)
    return *greatest, *least, torch.histc(y, 8, -3, 5), torch.histc(y.round(), 9, 0, 9)


def cases() -> dict[str, Callable[[], Case]]:
    """By name, a function that makes a model, its example inputs and its dynamic shapes."""
    randn = torch.randn
    perceptrons = {name: (lambda name=name: _perceptrons()[name]) for name in _perceptrons()}
    return {
        **perceptrons,
        **{name: (lambda name=name: _attentions()[name]) for name in _attentions()},
        **{name: (lambda name=name: _convolutions()[name]) for name in _convolutions()},
        "resnet-block": lambda: (_Residual().eval(), (randn(2, 3, 64, 64),), {"x": {0: aotpack.Dim("batch", 1, 64)}}),
        "resampling": lambda: (_resampling, (randn(2, 5, 9, 11),), None),
        "int8": _quantized,
        "int8-weights": lambda: _int8_weights(torch.float32),
        "int8-weights-bf16": lambda: _int8_weights(torch.bfloat16),
        "vectors": lambda: (_vectors, (randn(33, 33), randn(33, 33), randn(33)), None),
        "decode": _step,
        "lstm": lambda: (nn.LSTM(24, 40, 2, batch_first=True, bidirectional=True).eval(), (randn(3, 7, 24),), None),
        "gru": lambda: (nn.GRU(24, 40).eval(), (randn(7, 3, 24),), None),
        "lstm-batch": lambda: (
            nn.LSTM(24, 40).eval(),
            (randn(5, 17, 24),),
            {"input": {1: aotpack.Dim("batch", 1, 64)}},
        ),
        "gru-bf16": lambda: (nn.GRU(24, 40).bfloat16().eval(), (randn(5, 1, 24).bfloat16(),), None),
        "encoder": lambda: (nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval(), (randn(2, 9, 64),), None),
        "layer-norm": lambda: (nn.Sequential(nn.LayerNorm(512), nn.GELU()).eval(), (randn(64, 512),), _batch("input")),
        "group-norm": lambda: (nn.GroupNorm(2, 8).eval(), (randn(2, 8, 5, 5),), None),
        "device-dependent": lambda: (_device_dependent, (randn(8, 6), randn(6), randn(6)), None),
        "items": lambda: (lambda x, t: (x * t.item(), x - t.double().item()), (randn(8, 6), randn(())), None),
        "softmax": lambda: (lambda x: x.softmax(-1), (randn(64, 1000),), None),
        "reductions": lambda: (_reductions, (randn(64, 3000),), None),
        "scans": lambda: (lambda x: (x.cumsum(1), x.cumprod(0)), (randn(8, 100),), None),
        "sort": lambda: (lambda x: x.sort(-1), (randn(8, 100),), None),
        "embedding": lambda: (nn.Embedding(100, 16), (torch.randint(0, 100, (2, 7)),), None),
        "embedding-bag": _bags,
        "experts": lambda: _experts(torch.float32),
        "experts-bf16": lambda: _experts(torch.bfloat16),
        "selections": lambda: (
            _selections,
            (randn(4, 60), randn(300) * 4),
            {"x": {0: aotpack.Dim("rows", 1, 64)}, "y": {}},
        ),
        "scatter": lambda: (_scatter, (randn(4, 4), torch.randperm(4).expand(4, 4).clone(), randn(4, 4)), None),
        "casts": lambda: (_casts, (randn(8, 100),), None),
        "products": lambda: (_products, (randn(3, 40, 50), randn(3, 50, 60), randn(50, 70)), None),
        "complex-products": lambda: (
            _complex_products,
            tuple(torch.randn(sizes, dtype=torch.complex64) for sizes in ((3, 4, 5), (3, 5, 4), (5, 7))),
            None,
        ),
        "state": lambda: (_Cache().eval(), (randn(2, 64), torch.tensor([3, 5])), None),
        "literals": lambda: (lambda x: x * torch.tensor([1.0, 2.0]).repeat(4), (randn(4, 8),), None),
        "number": lambda: (lambda x, n: F.silu(x) * n, (randn(4, 8), 3), {"x": {}, "n": torch.export.Dim.DYNAMIC}),
    }
