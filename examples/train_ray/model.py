"""A classifier of 8x8 digits to train with several workers: `aotpack build examples/train_ray/model.py -o …`.

No layer computes with the whole batch or draws random numbers, so workers train what one does with the whole batch.
"""

from typing import Any

import torch
from torch import Tensor, nn

from aotpack import Dim
from aotpack.export import TrainingOptions

BATCH = 64


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128),
        nn.LayerNorm(128),
        nn.GELU(),
        nn.Linear(128, 64),
        nn.GELU(),
        nn.Linear(64, 10),
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
    # Buckets of 32 KiB, so that there are several.
    return TrainingOptions(hyperparameters=("lr",), clip_norm=1.0, outputs=False, buckets=32 * 1024)


def dynamic_shapes() -> dict[str, Any]:
    return {"input": {0: Dim("batch", 1, 2048)}, "labels": {0: "batch"}}
