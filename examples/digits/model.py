"""A small convolutional network for scikit-learn's digits, a source file for `aotpack build examples/digits/model.py`.

`aotpack build` calls `model()`, `example_inputs()` and `dynamic_shapes()`. The weights come from `train.py`; they and
everything else that the example writes lie in the folder named by the environment variable DIGITS_DIR, by default
`build/` beside this file.
"""

import os
from pathlib import Path

import torch
from torch import nn
from torch.export import Dim

# scikit-learn contains 1797 digits, so no call needs more.
MAX_BATCH = 1797


def artifacts() -> Path:
    """The directory of the weights, the held-out digits and the archive."""
    return Path(os.environ.get("DIGITS_DIR") or Path(__file__).parent / "build")


class DigitNet(nn.Module):
    """float32 [batch, 1, 8, 8] with values in [0, 1] -> float32 [batch, 10], one logit per digit."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images))


def model() -> nn.Module:
    """The trained network, in evaluation mode."""
    weights = artifacts() / "digits.pt"
    if not weights.exists():
        raise FileNotFoundError(f"{weights} is missing: run `python {Path(__file__).with_name('train.py')}` first")
    network = DigitNet()
    network.load_state_dict(torch.load(weights, weights_only=True))
    return network.eval()


def example_inputs() -> tuple[torch.Tensor, ...]:
    """Example inputs of one call; only shapes and dtypes matter."""
    return (torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)),)


def dynamic_shapes() -> tuple[dict[int, Dim], ...]:
    """The dynamic dims of the inputs, with their ranges."""
    return ({0: Dim("batch", min=1, max=MAX_BATCH)},)
