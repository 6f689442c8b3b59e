"""What one archive trains becomes weights of another: in the process, and as a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.runtime.packing import export_weights, pack_weights

pytestmark = pytest.mark.torch


class Net(nn.Module):
    """A layer that stays, a folded norm, and a head that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.body(x))))


class Step(Net):
    """One step of gradient descent for the head, written out."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        features = torch.relu(self.norm(self.body(x)))
        error = self.head(features) - y
        with torch.no_grad():
            self.head.weight.sub_(0.1 * error.T @ features / len(x))
            self.head.bias.sub_(0.1 * error.mean(0))
        return (error**2).mean()


def test_a_trained_head_is_served(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Net().requires_grad_(False).eval()
    net.norm.running_var.uniform_(0.5, 2)
    step = Step().requires_grad_(False).eval()
    step.load_state_dict(net.state_dict())
    x, y = torch.randn(8, 4), torch.randn(8, 3)
    build_archive(aot_export(step, (x, y)), tmp_path / "step.aotpack")
    build_archive(aot_export(net, (x,)), tmp_path / "net.aotpack", options=BuildOptions(updatable=True))

    context = aotpack.load(tmp_path / "step.aotpack").context(check_finite=True)
    assert list(context.state()) == ["head.weight", "head.bias"]
    for _ in range(5):
        torch.testing.assert_close(context(x, y), step(x, y))
    net.load_state_dict(step.state_dict())
    expected = net(x)

    served = aotpack.load(tmp_path / "net.aotpack")
    assert not torch.allclose(served(x), expected)
    served.update_weights(context)
    torch.testing.assert_close(served(x), expected)

    context.save_state(tmp_path / "state.safetensors")
    export_weights(tmp_path / "net.aotpack", tmp_path / "state.safetensors", tmp_path / "weights.safetensors")
    weights = load_file(tmp_path / "weights.safetensors")
    assert weights.keys() == net.state_dict().keys()
    net.load_state_dict(weights)
    torch.testing.assert_close(net(x), expected)
    pack_weights(tmp_path / "net.aotpack", tmp_path / "weights.safetensors", tmp_path / "trained.aotpack")
    torch.testing.assert_close(aotpack.load(tmp_path / "trained.aotpack")(x), expected)

    # And back: a state dict of torch continues in the archive.
    save_file(step.state_dict(), tmp_path / "torch.safetensors")
    resumed = aotpack.load(tmp_path / "step.aotpack").context()
    resumed.load_state(tmp_path / "torch.safetensors", strict=False)
    torch.testing.assert_close(resumed(x, y), step(x, y))
