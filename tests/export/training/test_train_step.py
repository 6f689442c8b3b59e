"""Training archives: what users train, step by step beside eager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack import Dim
from aotpack.errors import CaptureError, InputError
from aotpack.export import BuildOptions, Program, TrainingOptions, aot_export, build_archive

pytestmark = pytest.mark.torch
F = nn.functional


def _built(program: Program, folder: Path, cache_dir: Path) -> aotpack.Model:
    path = folder / f"{len(list(folder.iterdir()))}.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    return aotpack.load(path, verify="full", num_threads=2)


def _assert_state(context: aotpack.runtime.Context, model: nn.Module) -> None:
    """Every tensor of the context that the model has is that of the model."""
    state = context.state()
    tensors = model.state_dict()
    assert {name for name in state if not name.startswith("optimizer.")} <= tensors.keys()
    for name, value in state.items():
        if name in tensors:
            actual, expected = torch.as_tensor(value.numpy()), tensors[name]
            assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max().clamp(min=0.1), name


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.0)
        self.head = nn.Linear(4 * 4 * 4, 3)

    def forward(self, image: Tensor) -> Tensor:
        hidden = F.max_pool2d(F.relu(self.norm(self.convolution(image))), 2)
        return self.head(self.dropout(hidden.flatten(1)))  # type: ignore[no-any-return]


def _two_groups(model: Cnn) -> torch.optim.Optimizer:
    body = [*model.convolution.parameters(), *model.norm.parameters()]
    groups = [{"params": body, "lr": 0.01}, {"params": model.head.parameters(), "weight_decay": 0.1}]
    return torch.optim.AdamW(groups, lr=0.05)


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> aotpack.Model:
    model = Cnn()
    program = aot_export(
        model,
        (torch.randn(4, 1, 8, 8),),
        mode="train_step",
        loss=nn.CrossEntropyLoss(label_smoothing=0.1),
        loss_args=(torch.tensor([0, 1, 2, 0]),),
        optimizer=_two_groups(model),
        dynamic_shapes={"image": {0: Dim("batch", 1, 16)}, "target": {0: "batch"}},
        training=TrainingOptions(hyperparameters=("lr", "betas"), clip_norm=0.5, clip_value=0.2),
    )
    assert model.training
    assert model.norm.training
    return _built(program, tmp_path_factory.mktemp("cnn"), cache_dir)


def test_trains_and_evaluates_by_turns(cnn: aotpack.Model) -> None:
    """Batch norm in training, groups, hyperparameters of each call, clipping, batches from 2 to the greatest."""
    model, context = Cnn(), cnn.context()
    step, optimizer = context.entry("train_step"), _two_groups(model)
    for i, batch in enumerate((4, 16, 2, 7, 4, 4)):
        images, targets = torch.randn(batch, 1, 8, 8), torch.randint(3, (batch,))
        rates, betas = [0.01 / (i + 1), 0.05 / (i + 1)], [(0.8, 0.99), (0.9, 0.999 - 0.01 * i)]
        for group, rate, pair in zip(optimizer.param_groups, rates, betas, strict=True):
            group["lr"], group["betas"] = rate, pair
        model.train()
        optimizer.zero_grad()
        outputs = model(images)
        loss = F.cross_entropy(outputs, targets, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.2)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        result = step(images, targets, rates, betas) if i % 2 else step(images, target=targets, lr=rates, betas=betas)
        torch.testing.assert_close(result["loss"], loss.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(result["outputs"], outputs.detach(), rtol=1e-4, atol=1e-5)
        _assert_state(context, model)
        model.eval()
        with torch.no_grad():
            torch.testing.assert_close(context(images), model(images), rtol=1e-4, atol=1e-5)
    context.reset()
    _assert_state(context, Cnn())


def test_state_has_the_names_of_torch(cnn: aotpack.Model) -> None:
    model = Cnn()
    names = {f"optimizer.state.{name}.{key}" for name, _ in model.named_parameters() for key in _ADAM}
    assert cnn.context().state().keys() == model.state_dict().keys() | names
    parameters = {c.name for c in cnn.manifest.constants if c.role == "parameter"}
    assert parameters == {name for name, _ in model.named_parameters()}
    step = next(entry for entry in cnn.manifest.entries if entry.name == "train_step").signature
    assert str(step).startswith("train_step(image: float32[batch, 1, 8, 8], target: int64[batch], lr: [float, float]")


_ADAM = ("step", "exp_avg", "exp_avg_sq")


def test_a_wrong_call_names_the_argument(cnn: aotpack.Model) -> None:
    step = cnn.context().entry("train_step")
    with pytest.raises(InputError, match="batch"):
        step(torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2]), [0.1, 0.1], [(0.9, 0.9)] * 2)
    with pytest.raises(InputError, match="lr"):
        step(torch.randn(3, 1, 8, 8), torch.tensor([0, 1, 2]))


class Language(nn.Module):
    """Tied embeddings, a frozen layer, a parameter without effect, and one that the optimizer does not have."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(11, 6, padding_idx=0)
        self.frozen = nn.Linear(6, 6)
        self.frozen.requires_grad_(False)
        self.norm = nn.LayerNorm(6)
        self.unused = nn.Parameter(torch.ones(3))
        self.left_out = nn.Parameter(torch.ones(6))
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.tokens.weight

    def forward(self, tokens: Tensor, *, scale: Tensor) -> dict[str, Tensor]:
        hidden = self.norm(self.frozen(self.tokens(tokens)) * self.left_out) * scale
        return {"logits": self.out(hidden)}

    def trained(self) -> list[nn.Parameter]:
        return [self.tokens.weight, *self.norm.parameters(), self.unused]


def _next_token(outputs: dict[str, Tensor], tokens: Tensor) -> Tensor:
    return F.cross_entropy(outputs["logits"][:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> aotpack.Model:
    model, tokens = Language(), torch.randint(11, (2, 5))
    program = aot_export(
        model,
        (tokens,),
        {"scale": torch.ones(6)},
        mode="train_step",
        loss=_next_token,
        loss_args=(tokens,),
        optimizer=torch.optim.SGD(model.trained(), lr=0.1, momentum=0.9),
        dynamic_shapes={"tokens": {0: "batch"}, "loss_tokens": {0: "batch"}},
        training=TrainingOptions(accumulate="mean", outputs=False),
    )
    return _built(program, tmp_path_factory.mktemp("language"), cache_dir)


def test_gradients_accumulate(language: aotpack.Model) -> None:
    model, context, scale = Language(), language.context(), torch.rand(6)
    optimizer = torch.optim.SGD(model.trained(), lr=0.1, momentum=0.9)
    for batches in (3, 1, 2):
        optimizer.zero_grad()
        for batch in range(1, batches + 1):
            tokens = torch.randint(11, (batch, 5))
            loss = _next_token(model(tokens, scale=scale), tokens)
            (loss / batches).backward()
            result = context.entry("accumulate")(tokens, tokens, scale=scale)
            assert list(result) == ["loss"]
            torch.testing.assert_close(result["loss"], loss.detach())
        optimizer.step()
        assert context.entry("apply")()["batches"].tolist() == batches
        _assert_state(context, model)
    # A whole step beside them, over the same state.
    optimizer.zero_grad()
    tokens = torch.randint(11, (2, 5))
    _next_token(model(tokens, scale=scale), tokens).backward()
    optimizer.step()
    context.entry("train_step")(tokens, tokens, scale=scale)
    _assert_state(context, model)
    torch.testing.assert_close(context(tokens, scale=scale)["logits"], model(tokens, scale=scale)["logits"].detach())


def test_what_is_not_trained_stays_a_constant(language: aotpack.Model) -> None:
    state = language.context().state()
    assert {name for name in state if not name.startswith("optimizer.")} == {
        "tokens.weight",
        "norm.weight",
        "norm.bias",
    }
    roles = {constant.name: constant.mutated for constant in language.manifest.constants}
    assert roles["left_out"] is False
    assert "unused" not in roles


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Dropout(0.5), nn.Linear(32, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> aotpack.Model:
    model = Noisy()
    program = aot_export(
        model,
        (torch.randn(8, 6),),
        mode="train_step",
        loss=F.mse_loss,
        loss_args=(torch.randn(8, 2),),
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
    )
    return _built(program, tmp_path_factory.mktemp("noisy"), cache_dir)


def test_dropout_follows_the_seed(noisy: aotpack.Model) -> None:
    x, target = torch.randn(8, 6), torch.randn(8, 2)

    def trained(seed: int) -> list[Any]:
        context = noisy.context(seed=seed)
        losses = [context.entry("train_step")(x, target)["loss"].item() for _ in range(3)]
        return [losses, {name: value.tolist() for name, value in context.state().items()}]

    first = trained(1)
    assert trained(1) == first
    assert trained(2)[0] != first[0]
    # Evaluation draws nothing.
    context = noisy.context()
    assert torch.equal(context(x), context(x))


def test_autocast_keeps_masters_in_single_precision(tmp_path: Path, cache_dir: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 2))
    x, target = torch.randn(8, 6), torch.randn(8, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    with autocast:
        program = aot_export(model, (x,), mode="train_step", loss=F.mse_loss, loss_args=(target,), optimizer=optimizer)
    context = _built(program, tmp_path, cache_dir).context()
    assert {value.dtype for value in context.state().values()} == {"float32"}
    for _ in range(20):
        optimizer.zero_grad()
        with autocast:
            loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        result = context.entry("train_step")(x, target)
        assert result["outputs"].dtype == torch.bfloat16
        torch.testing.assert_close(result["loss"], loss.detach(), rtol=0.01, atol=0.01)
    state = context.state()
    for name, expected in model.state_dict().items():
        actual = torch.as_tensor(state[name].numpy())
        assert (actual - expected).abs().max() <= 2**-8 * expected.abs().max(), name
    with torch.no_grad(), autocast:
        torch.testing.assert_close(context(x), model.eval()(x), rtol=0.02, atol=0.02)


class Averaging(nn.Module):
    """Replaces a buffer in each step, by values that the loss depends on."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.register_buffer("average", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) * self.average
        if self.training:
            self.average = self.average * 0.9 + y.mean(0).detach() * 0.1
        return y - self.average


def test_buffers_that_are_replaced(tmp_path: Path, cache_dir: Path) -> None:
    model, x = Averaging(), torch.randn(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    program = aot_export(model, (x,), mode="train_step", loss=F.mse_loss, loss_args=(x,), optimizer=optimizer)
    assert torch.equal(model.average, torch.ones(4))
    context = _built(program, tmp_path, cache_dir).context()
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        optimizer.step()
        context.entry("train_step")(x, x)
        _assert_state(context, model)


def test_continues_what_eager_has_begun(tmp_path: Path, cache_dir: Path) -> None:
    """From parameters and momentum after two steps; beside a scheduler, which wraps the optimizer's step."""
    model, x, target = nn.Sequential(nn.Linear(4, 5), nn.PReLU()), torch.randn(6, 4), torch.randn(6, 5)
    optimizer = torch.optim.SGD(model[0].parameters(), lr=torch.tensor(0.1), momentum=0.9, dampening=0.5)
    torch.optim.lr_scheduler.StepLR(optimizer, 10)

    def eager_step() -> None:
        optimizer.zero_grad()
        F.mse_loss(model(x), target).backward()
        optimizer.step()

    eager_step()
    eager_step()
    # Its first step is still to come.
    optimizer.add_param_group({"params": model[1].parameters(), "lr": 0.01})
    program = aot_export(model, (x,), mode="train_step", loss=F.mse_loss, loss_args=(target,), optimizer=optimizer)
    assert len(optimizer.state) == 2
    context = _built(program, tmp_path, cache_dir).context()
    _assert_state(context, model)
    for _ in range(3):
        eager_step()
        context.entry("train_step")(x, target)
        _assert_state(context, model)


class Twice(nn.Module):
    """The same modules in several places, with a batch norm that is called twice in a step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        norm, linear = nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.body = nn.Sequential(linear, nn.Tanh(), norm, nn.Linear(4, 4), norm, linear)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)  # type: ignore[no-any-return]


def test_shared_modules(tmp_path: Path, cache_dir: Path) -> None:
    model, x, target = Twice(), torch.randn(6, 4), torch.randn(6, 4)
    names, tables = list(model.state_dict()), [dict(module._parameters) for module in model.modules()]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-3)
    program = aot_export(model, (x,), mode="train_step", loss=F.mse_loss, loss_args=(target,), optimizer=optimizer)
    assert list(model.state_dict()) == names
    assert [dict(module._parameters) for module in model.modules()] == tables
    assert model.body[5] is model.body[0]
    context = _built(program, tmp_path, cache_dir).context()
    for _ in range(4):
        optimizer.zero_grad()
        F.mse_loss(model(x), target).backward()
        optimizer.step()
        context.entry("train_step")(x, target)
        _assert_state(context, model)
    torch.testing.assert_close(context(x), model.eval()(x).detach(), rtol=1e-4, atol=1e-5)


# ---- what cannot be captured ----------------------------------------------------------------------------------------


def _capture(model: nn.Module, **changed: Any) -> Program:
    options: dict[str, Any] = {
        "mode": "train_step",
        "loss": F.cross_entropy,
        "loss_args": (torch.tensor([0, 1]),),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    return aot_export(model, (torch.randn(2, 3),), **{**options, **changed})


def _other() -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1)


class ChangesGroups(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        self.param_groups[0]["lr"] *= 0.9


class CountsItself(torch.optim.SGD):
    def __init__(self, params: Any) -> None:
        super().__init__(params, lr=0.1)
        self.count = torch.zeros(())

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        self.count.add_(1)


class BranchesOnCounts(torch.optim.Optimizer):
    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state["step"] = state.get("step", 0) + 1
            if state["step"] > 5:
                p.sub_(p.grad)


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"loss": None}, "needs `loss`"),
        ({"optimizer": None}, "needs `optimizer`"),
        ({"optimizer": torch.optim.SGD}, "needs `optimizer`"),
        ({"optimizer": _other()}, "not one of the model"),
        ({"loss": lambda outputs, targets: outputs}, r"shape \(2, 2\)"),
        ({"loss": lambda outputs, targets: outputs.detach().sum()}, "does not depend"),
        ({"loss": lambda outputs, targets: 0.5}, "the loss is a float"),
        ({"loss": lambda outputs: outputs.sum()}, "the example call itself fails: TypeError"),
        ({"training": TrainingOptions(hyperparameters=("beta",))}, "'beta' is None"),
        ({"training": TrainingOptions(hyperparameters=("nesterov",))}, "'nesterov' is False"),
        ({"training": TrainingOptions(hyperparameters="lr")}, "a string"),
        ({"training": TrainingOptions(clip_norm=0.0)}, "clip_norm"),
        ({"dynamic_shapes": 3}, "dynamic_shapes is a int"),
        ({"training": TrainingOptions(clip_value=float("nan"))}, "clip_value"),
        ({"loss_args": torch.tensor([0, 1])}, "tuples"),
        ({"method": "other"}, "method"),
        ({"mode": "joint"}, 'are for mode="train_step"'),
    ],
)
def test_wrong_requests_are_named(changed: dict[str, Any], wrong: str) -> None:
    with pytest.raises(CaptureError, match=wrong):
        _capture(nn.Linear(3, 2), **changed)


def test_wrong_models_and_optimizers_are_named() -> None:
    with pytest.raises(CaptureError, match="evaluation mode"):
        _capture(nn.Linear(3, 2).eval())
    model = nn.Linear(3, 2)
    weight = model.weight
    with pytest.raises(CaptureError, match="no gradient of 'weight'"):
        _capture(model, loss=lambda outputs, targets: weight.sum() + model.bias.sum() + outputs.detach().sum())
    with pytest.raises(CaptureError, match="changes 'lr'"):
        _capture(model, optimizer=ChangesGroups(model.parameters(), lr=0.1))
    with pytest.raises(CaptureError, match="changes its attribute 'count'"):
        _capture(model, optimizer=CountsItself(model.parameters()))
    with pytest.raises(CaptureError, match="'momentum_buffer' of 'weight' only with hyperparameters other"):
        _capture(model, training=TrainingOptions(hyperparameters=("momentum",)))
    with pytest.raises(CaptureError, match="step of BranchesOnCounts"):
        _capture(model, optimizer=BranchesOnCounts(model.parameters()))
    with pytest.raises(CaptureError, match="LBFGS"):
        _capture(model, optimizer=torch.optim.LBFGS(model.parameters()))
    holder = nn.Sequential()
    holder.add_module("optimizer", nn.Linear(3, 2))
    with pytest.raises(CaptureError, match="'optimizer'"):
        _capture(holder)
    sparse = nn.Sequential(nn.Embedding(5, 2, sparse=True))
    with pytest.raises(CaptureError, match="sparse"):
        aot_export(
            sparse,
            (torch.tensor([1, 2]),),
            mode="train_step",
            loss=F.cross_entropy,
            loss_args=(torch.tensor([0, 1]),),
            optimizer=torch.optim.SGD(sparse.parameters(), lr=0.1),
        )
    frozen = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(frozen.parameters(), lr=0.1)
    with pytest.raises(CaptureError, match="requires grad"):
        _capture(frozen.requires_grad_(False), optimizer=optimizer)


def test_sizes_in_every_form() -> None:
    """Of all arguments, by position, and where the arguments of model and loss have one name."""
    model = nn.Linear(3, 2)

    def loss(outputs: Tensor, input: Tensor) -> Tensor:
        return F.cross_entropy(outputs, input)

    for shapes in ("auto", ({0: "n"}, {0: "n"}), {"input": {0: "n"}, "loss_input": {0: "n"}}):
        program = _capture(model, loss=loss, dynamic_shapes=shapes)
        for each in (program, *program.companions):
            assert [dim.min for dim in each.signature.dims] == [0]
        assert [spec.name for spec in program.signature.inputs] == ["input", "loss_input"]
