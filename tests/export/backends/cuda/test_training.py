"""A step of training on a GPU: against eager, checkpoints, steps that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from aotpack.export import BuildOptions, TrainingOptions, aot_export, build_archive
from tests.support.interpreted_gpu.recording import recorded_kernels
from tests.support.torchless import RemoteModel, Torchless

pytestmark = pytest.mark.torch

LEARNING_RATES = (0.02, 0.01, 0.005)


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 3, bias=False), nn.BatchNorm1d(3))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, kernels: Path, cache_dir: Path) -> Path:
    model = _model()
    with recorded_kernels(kernels):
        program = aot_export(
            model,
            (torch.randn(5, 6),),
            mode="train_step",
            loss=F.cross_entropy,
            loss_args=(torch.randint(3, (5,)),),
            optimizer=torch.optim.AdamW(model.parameters(), weight_decay=0.1),
            training=TrainingOptions(hyperparameters=("lr",), clip_norm=0.5),
        )
        path = tmp_path_factory.mktemp("training") / "model.aotpack"
        build_archive(program, path, targets=["cuda-sm_90"], options=BuildOptions(cache_dir=cache_dir))
    return path


@pytest.fixture
def context(gpu: Torchless, trained: Path) -> RemoteModel:
    return gpu.load(trained, device="cuda:0").context(check_finite=True)


def _batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(5, 6, generator=generator), torch.randint(3, (5,), generator=generator)) for _ in LEARNING_RATES
    ]


def _eager() -> tuple[nn.Module, list[float], Any]:
    model = _model().double()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    losses = []
    for (x, target), rate in zip(_batches(), LEARNING_RATES, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.double()), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return model, losses, optimizer.state_dict()["state"]


def _check(context: RemoteModel) -> None:
    model, _, moments = _eager()
    state = context.method("state")
    for name, value in model.state_dict().items():
        assert_close(state[name], value.to(state[name].dtype), rtol=0, atol=2e-6)
    for number, (name, _) in enumerate(model.named_parameters()):
        for key in ("exp_avg", "exp_avg_sq"):
            assert_close(state[f"optimizer.state.{name}.{key}"], moments[number][key].float(), rtol=1e-4, atol=1e-6)


def test_steps_agree_with_eager(context: RemoteModel) -> None:
    step = context.entry("train_step")
    losses = [float(step(*batch, lr=rate)["loss"]) for batch, rate in zip(_batches(), LEARNING_RATES, strict=True)]
    model, wanted, _ = _eager()
    assert losses == pytest.approx(wanted, abs=1e-6)
    _check(context)
    # The entry for evaluation reads the state of the same context.
    x = _batches()[0][0]
    with torch.no_grad():
        assert_close(context(x), model.eval()(x.double()).float(), rtol=0, atol=5e-6)


def test_a_checkpoint_continues(gpu: Torchless, trained: Path, context: RemoteModel, tmp_path: Path) -> None:
    batches = list(zip(_batches(), LEARNING_RATES, strict=True))
    for batch, rate in batches[:2]:
        context.entry("train_step")(*batch, lr=rate)
    context.method("save_state", str(tmp_path / "checkpoint.safetensors"))
    later = gpu.load(trained, device="cuda:0").context()
    later.method("load_state", str(tmp_path / "checkpoint.safetensors"))
    for each in (context, later):
        each.entry("train_step")(*batches[2][0], lr=batches[2][1])
    _check(later)
    ours, theirs = context.method("state"), later.method("state")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_step_whose_loss_is_not_finite_changes_nothing(context: RemoteModel) -> None:
    (x, target), *_ = _batches()
    before = context.method("state")
    x[0, 0] = float("nan")
    with pytest.raises(Exception, match="finite"):
        context.entry("train_step")(x, target, lr=0.1)
    after = context.method("state")
    assert all(torch.equal(before[name], after[name]) for name in before)
