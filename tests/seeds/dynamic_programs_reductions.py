"""Operator programs: reductions, normalisations, losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.seeds.dynamic_template import bools, ints, positive, program

REDUCTIONS = (
    program("sum_all", lambda x: x.sum(), "b n"),
    program("sum_dim", lambda x: x.sum(1, keepdim=True), "b n k"),
    program("sum_dims", lambda x: x.sum((0, 2)), "b n k"),
    program("mean", lambda x: (x.mean(), x.mean(-1)), "b n"),
    program("prod", lambda x: (x.prod(), x.prod(0)), positive("b n", 0.5, 1.5)),
    program("amax_amin", lambda x: (x.amax(-1), x.amin(0)), "b n"),
    program("aminmax", lambda x: torch.aminmax(x, dim=-1), "b n"),
    program("max_with_places", lambda x: x.max(-1), "b n"),
    program("min_with_places", lambda x: x.min(0, keepdim=True), "b n"),
    program("argmax", lambda x: (x.argmax(), x.argmax(-1)), "b n"),
    program("argmin", lambda x: x.argmin(1), "b n k"),
    program("any_all", lambda m: (m.any(), m.all(-1), m.any(0)), bools("b n")),
    program("var_std", lambda x: (x.var(-1), x.std(0, correction=0)), "b n", least={"b": 2, "n": 2}),
    program("var_mean", lambda x: torch.var_mean(x, dim=-1, correction=0), "b n"),
    program("norms", lambda x: (x.norm(), x.norm(dim=-1), x.norm(p=1, dim=0)), "b n"),
    program("vector_norm", lambda x: torch.linalg.vector_norm(x, 3, dim=-1), "b n"),
    program("logsumexp", lambda x: x.logsumexp(-1), "b n"),
    program("count_nonzero", lambda x: (torch.count_nonzero(x), torch.count_nonzero(x, dim=0)), ints("b n", 3)),
    program("nansum", lambda x: torch.nansum(x / x.sign().clamp(min=0), -1), "b n"),
    program("square_sum_of_products", lambda x, y: ((x - y) ** 2).sum(-1).sqrt(), "b n", "b n"),
    program("sum_of_ints", lambda x: (x.sum(), x.sum(0)), ints("b n")),
    program("cosine_similarity", lambda x, y: F.cosine_similarity(x, y, dim=-1), "b n", "b n"),
    program("pairwise_distance", lambda x, y: F.pairwise_distance(x, y), "b n", "b n"),
    program("trace_diagonal", lambda x: x.diagonal().sum(), "n k"),
    program("median_by_sort", lambda x: x.sort(-1).values[..., (x.shape[-1] - 1) // 2], "b n", least={"n": 1}),
)


class ConditionalScale(nn.Module):
    """A norm of the root mean square, as language models have."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def _batch_norm(features: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(features).eval()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    norm.running_mean.normal_()  # type: ignore[union-attr]
    norm.running_var.uniform_(0.5, 2.0)  # type: ignore[union-attr]
    return norm


NORMALISATIONS = (
    program("softmax", lambda x: x.softmax(-1), "b n"),
    program("softmax_first_dim", lambda x: x.softmax(0), "b n"),
    program("log_softmax", lambda x: x.log_softmax(1), "b n k"),
    program("layer_norm_dynamic", lambda x: F.layer_norm(x, x.shape[-1:]), "b n", least={"n": 2}),
    program("layer_norm_weighted", nn.LayerNorm(12), "b n 12"),
    program("layer_norm_of_two", lambda x, w: F.layer_norm(x, w.shape, w), "b n k", "n k", least={"k": 2}),
    program("rms_norm", ConditionalScale(10), "b n 10"),
    program("group_norm", nn.GroupNorm(2, 6), "b 6 h w", least={"h": 2}, tolerance=1e-4),
    program("instance_norm", lambda x: F.instance_norm(x), "b c h w", least={"h": 2, "w": 2}, tolerance=1e-4),
    program("batch_norm", _batch_norm(5), "b 5 h w"),
    program("normalize", lambda x: F.normalize(x, dim=-1), "b n"),
    program("standardise", lambda x: (x - x.mean(0)) / (x.std(0, correction=0) + 1e-5), "b n", least={"b": 2}),
    program("softmin", lambda x: F.softmin(x, dim=-1), "b n"),
    program("masked_softmax", lambda x, m: x.masked_fill(m, -1e9).softmax(-1), "b n k", bools("b 1 k")),
    program("local_response_norm", lambda x: F.local_response_norm(x, 3), "b c h w", never_empty="b c h w"),
)

LOSSES = (
    program("mse_loss", F.mse_loss, "b n", "b n"),
    program("l1_loss", lambda x, y: F.l1_loss(x, y, reduction="sum"), "b n", "b n"),
    program("smooth_l1_loss", F.smooth_l1_loss, "b n", "b n"),
    program("huber_loss", lambda x, y: F.huber_loss(x, y, reduction="none"), "b n", "b n"),
    program("cross_entropy", F.cross_entropy, "b c", ints("b", "c")),
    program("cross_entropy_smoothed", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), "b c", ints("b", "c")),
    program("cross_entropy_of_images", lambda x, y: F.cross_entropy(x, y, ignore_index=0), "b c h", ints("b h", "c")),
    program("nll_loss", lambda x, y: F.nll_loss(x.log_softmax(-1), y, reduction="sum"), "b c", ints("b", "c")),
    program("cross_entropy_of_shares", lambda x, y: F.cross_entropy(x, y.softmax(-1)), "b c", "b c", least={"c": 1}),
    program("binary_cross_entropy", F.binary_cross_entropy, positive("b n", 0.1, 0.9), positive("b n", 0.0, 1.0)),
    program("bce_with_logits", F.binary_cross_entropy_with_logits, "b n", positive("b n", 0.0, 1.0)),
    program("kl_div", lambda x, y: F.kl_div(x.log_softmax(-1), y, reduction="batchmean"), "b n", positive("b n")),
    program("hinge_embedding_loss", lambda x, y: F.hinge_embedding_loss(x, y.sign()), "b n", "b n"),
    program("margin_ranking_loss", lambda x, y, z: F.margin_ranking_loss(x, y, z.sign()), "n", "n", "n"),
    program("triplet_margin_loss", F.triplet_margin_loss, "b n", "b n", "b n"),
    program("poisson_nll_loss", lambda x, y: F.poisson_nll_loss(x, y), "b n", positive("b n")),
    program("soft_margin_loss", lambda x, y: F.soft_margin_loss(x, y.sign()), "b n", "b n"),
    program("gaussian_nll_loss", F.gaussian_nll_loss, "b n", "b n", positive("b n")),
)
