"""A CNN for 8x8 digits with a step of its training: `aotpack build examples/train_cpp/model.py -o train.aotpack`."""

from typing import Any

import torch
from torch import Tensor, nn

from aotpack import Dim
from aotpack.export import TrainingOptions

BATCH = 64


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(256, 10),
    )


def example_inputs() -> tuple[Tensor, ...]:
    return (torch.randn(BATCH, 1, 8, 8),)


def loss(scores: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(scores, labels)


def loss_inputs() -> tuple[Tensor, ...]:
    return (torch.randint(10, (BATCH,)),)


def optimizer(network: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(network.parameters(), weight_decay=0.01)


def training() -> TrainingOptions:
    # The program passes the learning rate, and needs the loss alone.
    return TrainingOptions(hyperparameters=("lr",), clip_norm=1.0, outputs=False)


def dynamic_shapes() -> dict[str, Any]:
    return {"input": {0: Dim("batch", 1, 2048)}, "labels": {0: "batch"}}
