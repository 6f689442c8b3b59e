"""Operator programs: matrix products, convolutions and pooling, attention and embedding, recurrent layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.seeds.dynamic_template import bools, ints, program

MATMUL = (
    program("mm", torch.mm, "n k", "k m"),
    program("matmul_batched", torch.matmul, "b n k", "b k m"),
    program("matmul_broadcast", torch.matmul, "a b n k", "k m"),
    program("matmul_vector", torch.matmul, "b n k", "k"),
    program("dot", torch.dot, "n", "n"),
    program("mv", torch.mv, "n k", "k"),
    program("outer", torch.outer, "n", "k"),
    program("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), "m", "n k", "k m"),
    program("baddbmm", torch.baddbmm, "b n m", "b n k", "b k m"),
    program("linear_functional", F.linear, "b n k", "m k", "m"),
    program("linear_module", nn.Linear(24, 40), "b n 24"),
    program("mlp", nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 16)), "b n 16"),
    program("einsum_bilinear", lambda x, w, y: torch.einsum("bi,ij,bj->b", x, w, y), "b n", "n k", "b k"),
    program("einsum_heads", lambda x, y: torch.einsum("bnhd,bmhd->bhnm", x, y), "b n h d", "b m h d"),
    program("tensordot", lambda x, y: torch.tensordot(x, y, dims=2), "b n k", "n k m"),
    program("gram", lambda x: x @ x.transpose(-1, -2), "b n k"),
    program("bilinear", nn.Bilinear(6, 5, 3), "b 6", "b 5"),
    program("cdist", lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1).sqrt(), "n k", "m k"),
)

CONVOLUTIONS = (
    program("conv2d", nn.Conv2d(3, 8, 3, padding=1), "b 3 h w"),
    program("conv2d_strided", nn.Conv2d(3, 8, 3, stride=2), "b 3 h w", least={"h": 3, "w": 3}),
    program("conv2d_weights_given", F.conv2d, "b c h w", "k c 3 3", least={"c": 1, "k": 1, "h": 3, "w": 3}),
    program("conv2d_depthwise", nn.Conv2d(6, 6, 3, padding=1, groups=6), "b 6 h w"),
    program("conv2d_dilated_relu", nn.Sequential(nn.Conv2d(4, 4, 3, dilation=2, padding=2), nn.ReLU()), "b 4 h w"),
    program("conv1d", nn.Conv1d(4, 6, 5, padding=2), "b 4 n"),
    program("conv1d_causal", lambda x, w: F.conv1d(F.pad(x, (2, 0)), w), "b 4 n", "5 4 3"),
    program("conv3d", nn.Conv3d(2, 3, 3, padding=1), "b 2 d h w"),
    program("conv_transpose2d", nn.ConvTranspose2d(3, 5, 2, stride=2), "b 3 h w"),
    program(
        "conv_then_pool",
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2)),
        "b 3 h w",
        least={"h": 2, "w": 2},
    ),
    program("max_pool2d", lambda x: F.max_pool2d(x, 2), "b c h w", least={"h": 2, "w": 2}),
    program("max_pool2d_ceil", lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), "b c h w", least={"h": 2, "w": 2}),
    program("max_pool1d_places", lambda x: F.max_pool1d(x, 2, return_indices=True), "b c n", least={"n": 2}),
    program("avg_pool2d", lambda x: F.avg_pool2d(x, 3, padding=1), "b c h w", least={"h": 2, "w": 2}),
    program("avg_pool1d", lambda x: F.avg_pool1d(x, 2), "b c n", least={"n": 2}),
    program("adaptive_avg_pool_one", lambda x: F.adaptive_avg_pool2d(x, 1), "b c h w", least={"h": 1, "w": 1}),
    program("adaptive_avg_pool", lambda x: F.adaptive_avg_pool2d(x, (2, 3)), "b c h w", least={"h": 1, "w": 1}),
    program("adaptive_max_pool", lambda x: F.adaptive_max_pool2d(x, 2), "b c h w", least={"h": 1, "w": 1}),
    program("global_max_pool", lambda x: x.amax((2, 3)), "b c h w", least={"h": 1, "w": 1}),
    program("interpolate_nearest", lambda x: F.interpolate(x, scale_factor=2), "b c h w", least={"h": 1, "w": 1}),
    program(
        "interpolate_bilinear",
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "b c h w",
        least={"h": 1, "w": 1},
    ),
    program(
        "interpolate_to_other",
        lambda x, y: F.interpolate(x, size=y.shape[-2:]),
        "b c h w",
        "p q",
        least={"h": 1, "w": 1, "p": 1, "q": 1},
    ),
    program(
        "interpolate_linear",
        lambda x: F.interpolate(x, scale_factor=2.0, mode="linear", align_corners=True),
        "b c n",
        least={"n": 1},
    ),
    program("im2col", lambda x: F.unfold(x, 3, padding=1), "b c h w", least={"h": 1, "w": 1}),
    program(
        "grid_sample",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        "b c h w",
        "b p q 2",
        least={"h": 1, "w": 1},
        tolerance=1e-4,
    ),
)


class Attention(nn.Module):
    """Heads over packed projections."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.out(y.transpose(1, 2).reshape(b, n, width))
        return out


class Recurrent(nn.Module):
    """The last state of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)[0]
        return y


def rotary(x: Tensor) -> Tensor:
    """Rotated positions, as language models have."""
    angles = torch.arange(x.shape[-2]).float()[:, None] / 10.0
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


ATTENTION = (
    program("attention", F.scaled_dot_product_attention, "b h n d", "b h m d", "b h m d", least={"d": 1, "m": 1}),
    program(
        "attention_causal",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "b h n d",
        "b h n d",
        "b h n d",
        least={"d": 1},
    ),
    program(
        "attention_masked",
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        "b h n d",
        "b h m d",
        "b h m d",
        "n m",
        least={"d": 1, "m": 1},
    ),
    program(
        "attention_spelled_out",
        lambda q, k, v: (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v,
        "b n d",
        "b m d",
        "b m d",
        least={"d": 1, "m": 1},
    ),
    program("attention_layer", Attention(16, 4), "b n 16", least={"n": 1}),
    program("embedding", nn.Embedding(20, 12), ints("b n", 20)),
    program("embedding_given", lambda w, i: F.embedding(i, w), "v k", ints("b n", "v"), least={"v": 1}),
    program(
        "embedding_with_positions",
        lambda w, p, i: w[i] + p[: i.shape[1]],
        "v k",
        "n+3 k",
        ints("b n", "v"),
        least={"v": 1},
    ),
    program("embedding_bag", nn.EmbeddingBag(20, 6, mode="sum"), ints("b n", 20)),
    program("rotary", rotary, "b h n 2*d", least={"d": 1}),
    program("lstm", Recurrent(nn.LSTM(6, 8, batch_first=True)), "b n 6", least={"b": 1, "n": 1}),
    program("gru", Recurrent(nn.GRU(5, 7)), "n b 5", least={"b": 1, "n": 1}),
    program(
        "encoder_layer", nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0), "b n 16", least={"n": 1}
    ),
    program(
        "padding_mask_pool",
        lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True).clamp(min=1),
        "b n k",
        bools("b n"),
    ),
)
