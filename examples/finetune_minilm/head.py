"""Trains the head alone: `aotpack build examples/finetune_minilm/head.py -o head.aotpack`."""

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
from torch import nn

__all__ = ["dynamic_shapes", "example_inputs", "loss", "loss_inputs", "model", "optimizer", "training"]


def model() -> nn.Module:
    return classifier(frozen_encoder())
