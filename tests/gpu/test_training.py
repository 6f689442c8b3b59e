"""Training on a GPU: a step against eager in double precision, checkpoints, forward and backward apart, aliases."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import torch
import torch.nn.functional as F
from torch import nn

import aotpack
from aotpack.export import TrainingOptions, Variant, aot_export, build_archive
from aotpack.torch import as_module
from tests.gpu.gpus import needs_gpu

pytestmark = needs_gpu


def _target() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"cuda-sm_{major}{minor}"


def _digits() -> nn.Module:
    torch.manual_seed(0)
    convolution = nn.Conv2d(1, 16, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> aotpack.Model:
    model = _digits()
    program = aot_export(
        model,
        (torch.randn(64, 1, 8, 8),),
        mode="train_step",
        loss=F.cross_entropy,
        loss_args=(torch.randint(10, (64,)),),
        optimizer=torch.optim.AdamW(model.parameters(), weight_decay=0.01),
        dynamic_shapes={"input": {0: aotpack.Dim("batch", 1, 2048)}, "target": {0: "batch"}},
        training=TrainingOptions(hyperparameters=("lr",), clip_norm=1.0),
    )
    path = tmp_path_factory.mktemp("digits") / "model.aotpack"
    build_archive(program, path, targets=[_target()])
    return aotpack.load(path, device="cuda:0")


def _batches(count: int) -> list[tuple[Any, Any, float]]:
    random = np.random.default_rng(0)
    sizes = [64, 1, 200, *[64] * count]
    return [
        (random.standard_normal((size, 1, 8, 8), np.float32), random.integers(0, 10, size), 0.005 / (1 + i))
        for i, size in enumerate(sizes[:count])
    ]


def test_twenty_steps_agree_with_eager(digits: aotpack.Model) -> None:
    context = digits.context(seed=0)
    step = context.entry("train_step")
    model = _digits().double()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    for x, target, rate in _batches(20):
        loss = step(x, target, lr=rate)["loss"].numpy()
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        wanted = F.cross_entropy(model(torch.from_numpy(x).double()), torch.from_numpy(target))
        wanted.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert float(loss) == pytest.approx(wanted.item(), abs=2e-5)
    state = context.state()
    for name, value in model.state_dict().items():
        scale = max(1e-3, float(value.abs().max()))
        np.testing.assert_allclose(state[name].numpy(), value.numpy(), rtol=0, atol=1e-4 * scale)


def test_a_checkpoint_continues_bit_by_bit(digits: aotpack.Model, tmp_path: Path) -> None:
    first, second = digits.context(seed=0), digits.context()
    batches = _batches(8)
    for number, (x, target, rate) in enumerate(batches):
        first.entry("train_step")(x, target, lr=rate)
        if number == 3:
            first.save_state(tmp_path / "checkpoint.safetensors")
    second.load_state(tmp_path / "checkpoint.safetensors")
    for x, target, rate in batches[4:]:
        second.entry("train_step")(x, target, lr=rate)
    ours, theirs = first.state(), second.state()
    for name in ours:
        np.testing.assert_array_equal(ours[name].numpy(), theirs[name].numpy(), err_msg=name)


def _layer() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 16))


def test_forward_and_backward_apart(tmp_path: Path) -> None:
    shapes = {"input": {0: aotpack.Dim("batch", 2, 64)}}
    example = torch.randn(4, 8, requires_grad=True)
    program = aot_export(_layer(), (example,), mode="forward_backward", dynamic_shapes=shapes)
    build_archive(program, tmp_path / "layer.aotpack", targets=[_target()])
    archive = aotpack.load(tmp_path / "layer.aotpack", device="cuda:0")
    random = np.random.default_rng(0)
    context = archive.context(seed=0)
    for size in (4, 64):
        x, gradient = (random.standard_normal((size, width), np.float32) for width in (8, 16))
        model = copy.deepcopy(_layer()).double()
        given = torch.from_numpy(x).double().requires_grad_()
        wanted = model(given)
        wanted.backward(torch.from_numpy(gradient).double())
        found, saved = context.forward(x)
        gradients = context.backward(saved, gradient)
        np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=0, atol=1e-5)
        assert given.grad is not None
        near = gradients["input_gradients"]["input"].numpy()
        np.testing.assert_allclose(near, given.grad.numpy(), rtol=0, atol=2e-5)
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            near = gradients["gradients"][name].numpy()
            np.testing.assert_allclose(near, parameter.grad.numpy(), rtol=0, atol=1e-4, err_msg=name)

    ours, theirs = as_module(archive, seed=0), _layer().cuda()
    assert {parameter.device for parameter in ours.parameters()} == {torch.device("cuda", 0)}
    x = torch.randn(4, 8, device="cuda", requires_grad=True)
    losses: list[list[float]] = []
    for model in (ours, theirs):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses.append([])
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def _accumulate(total: Any, step: Any) -> Any:
    total.add_(step)
    step.mul_(2)
    return total + step


def test_one_tensor_in_two_places(tmp_path: Path) -> None:
    variants: Any = [Variant(same=[("total", "step")]), {}]
    program = aot_export(_accumulate, (torch.zeros(3), torch.ones(3)), variants=variants)
    build_archive(program, tmp_path / "model.aotpack", targets=[_target()])
    archive = aotpack.load(tmp_path / "model.aotpack", device="cuda:0")
    for same in (True, False):
        x = torch.arange(3.0, device="cuda")
        y = x if same else torch.ones(3, device="cuda")
        x2 = x.clone()
        y2 = x2 if same else y.clone()
        found, wanted = archive(x, y), _accumulate(x2, y2)
        assert torch.equal(torch.from_dlpack(found), wanted)
        assert torch.equal(x, x2)
        assert torch.equal(y, y2)
