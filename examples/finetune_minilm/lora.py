"""Trains the head and low-rank updates of the attention: `aotpack build examples/finetune_minilm/lora.py -o …`."""

import torch
from classifier import (
    classifier,
    dynamic_shapes,
    example_inputs,
    frozen_encoder,
    loss,
    loss_inputs,
    optimizer,
    training,
)
from torch import Tensor, nn

__all__ = ["dynamic_shapes", "example_inputs", "loss", "loss_inputs", "model", "optimizer", "training"]

RANK = 8


class LowRank(nn.Module):
    """A frozen linear layer with a trained update of its weight, up @ down (Hu et al. 2021); at first it is zero."""

    def __init__(self, frozen: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.frozen, self.scale = frozen, alpha / rank
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features) / frozen.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + (x @ self.down.T) @ self.up.T * self.scale  # type: ignore[no-any-return]


def model() -> nn.Module:
    torch.manual_seed(1)
    bert = frozen_encoder()
    for layer in bert.encoder.layer:
        attention = layer.attention.self
        attention.query = LowRank(attention.query, RANK, 2 * RANK)
        attention.value = LowRank(attention.value, RANK, 2 * RANK)
    return classifier(bert)
