"""Entries for data-parallel training: gradients as flat buckets, and the update by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack import Dim
from aotpack.errors import CaptureError, InputError
from aotpack.export import BuildOptions, TrainingOptions, aot_export, build_archive
from aotpack.export.training.buckets import assigned, flat, gradients_of, table

pytestmark = pytest.mark.torch
F = nn.functional


def test_buckets_have_one_dtype_and_a_bounded_size() -> None:
    half = torch.bfloat16
    gradients = {
        "f": torch.arange(6.0).reshape(3, 2).T,
        "a": torch.full((3,), 7, dtype=half),
        "e": torch.empty(0),
        "d": torch.tensor(8.0),
        "large": torch.arange(20.0).reshape(4, 5),
        "b": torch.full((2, 2), 9, dtype=half),
        "c": torch.full((3,), 1.0),
    }
    slots = assigned(gradients, 28)
    buckets = flat(slots, gradients)
    # In the order of the last gradient of each: "d", "large", "b", "c".
    assert [(name, value.dtype, value.numel()) for name, value in buckets.items()] == [
        ("bucket0", torch.float32, 7),
        ("bucket1", torch.float32, 20),
        ("bucket2", half, 7),
        ("bucket3", torch.float32, 3),
    ]
    again = gradients_of(slots, buckets)
    assert again.keys() == gradients.keys()
    assert all(torch.equal(again[name], value) for name, value in gradients.items())
    assert table(slots)["d"] == {"bucket": "bucket0", "offset": 6, "shape": []}
    one = assigned(gradients, 1)
    assert len({slot.bucket for slot in one.values()}) == 6, "only an empty gradient has room for another"


class Tagger(nn.Module):
    """Tied weights, a buffer that training changes, a parameter in double precision and one of a convolution, whose
    layout is another than that of its bucket.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(7, 6)
        self.convolution = nn.Conv1d(6, 6, 3, padding=1)
        with torch.no_grad():
            self.convolution.weight.set_(self.convolution.weight.permute(0, 2, 1).contiguous().permute(0, 2, 1))
        self.scale = nn.Parameter(torch.ones(6, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(()))
        self.out = nn.Linear(6, 7, bias=False)
        self.out.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        if self.training:
            self.seen.add_(tokens.shape[0])
        hidden = torch.tanh(self.convolution(self.tokens(tokens).transpose(1, 2))).transpose(1, 2)
        return self.out(hidden * self.scale.float())  # type: ignore[no-any-return]


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> aotpack.Model:
    model, tokens = Tagger(), torch.randint(7, (2, 4))
    program = aot_export(
        model,
        (tokens,),
        mode="train_step",
        loss=_loss,
        loss_args=(tokens,),
        optimizer=_optimizer(model),
        dynamic_shapes={"tokens": {0: Dim("batch", 1, 64)}, "labels": {0: "batch"}},
        training=TrainingOptions(hyperparameters=("lr",), clip_norm=0.3, buckets=256, accumulate="mean", outputs=False),
    )
    assert all(not parameter._backward_hooks for parameter in model.parameters())
    path = tmp_path_factory.mktemp("tagger") / "tagger.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    return aotpack.load(path, num_threads=1)


def _batches(count: int, batch: int) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(count)
    return [tuple(torch.randint(7, (2, batch, 4), generator=random)) for _ in range(count)]  # type: ignore[misc]


def _reduced(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The means of buckets, as an all-reduce returns them."""
    return {
        name: np.mean([np.asarray(each["buckets"][name]) for each in results], axis=0) for name in results[0]["buckets"]
    }


def _assert_state(context: aotpack.Context, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    state = context.state()
    for name, parameter in model.named_parameters():
        for path, expected in (
            (name, parameter),
            (f"optimizer.state.{name}.momentum_buffer", optimizer.state[parameter]["momentum_buffer"]),
        ):
            actual = torch.as_tensor(state[path].numpy())
            assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max(), path


def test_two_workers_train_what_one_trains_with_the_whole_batch(tagger: aotpack.Model) -> None:
    """Clipping is that of the reduced gradients; of one worker's it would be another."""
    model, workers = Tagger(), [tagger.context() for _ in range(2)]
    optimizer = _optimizer(model)
    for step, (tokens, labels) in enumerate(_batches(4, 6)):
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        optimizer.zero_grad()
        loss = _loss(model(tokens), labels)
        loss.backward()
        assert nn.utils.clip_grad_norm_(model.parameters(), 0.3) > 0.3
        optimizer.step()
        results = [
            each.entry("gradients")(tokens[rows], labels[rows])
            for each, rows in zip(workers, (slice(3), slice(3, 6)), strict=True)
        ]
        assert abs(np.mean([float(each["loss"]) for each in results]) - loss.item()) < 1e-5
        buckets = _reduced(results)
        before = {name: value.copy() for name, value in buckets.items()}
        for each in workers:
            each.entry("apply")(buckets, lr=0.1 / (1 + step))
            _assert_state(each, model, optimizer)
        assert all(np.array_equal(buckets[name], value) for name, value in before.items())
    # Buffers are those of each worker.
    assert [float(each.state()["seen"].numpy()) for each in workers] == [12, 12]


def test_gradients_ends_an_accumulation(tagger: aotpack.Model) -> None:
    model, context = Tagger(), tagger.context()
    optimizer = _optimizer(model)
    for calls in (3, 1):
        optimizer.zero_grad()
        batches = _batches(calls, 2)
        for tokens, labels in batches:
            (_loss(model(tokens), labels) / calls).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()
        for tokens, labels in batches[:-1]:
            context.entry("accumulate")(tokens, labels)
        result = context.entry("gradients")(*batches[-1])
        assert int(result["batches"]) == calls
        context.entry("apply")(result["buckets"], lr=0.1)
        _assert_state(context, model, optimizer)


def test_the_table_says_where_gradients_are(tagger: aotpack.Model) -> None:
    model = Tagger()
    ((tokens, labels),) = _batches(1, 5)
    _loss(model(tokens), labels).backward()
    result = tagger.context().entry("gradients")(tokens, labels)
    table, buckets = result["parameters"], {name: value.numpy() for name, value in result["buckets"].items()}
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert table.keys() == gradients.keys()
    # Tied weights have their gradient when the backward has reached the embedding.
    assert list(table)[-1] == "tokens.weight"
    for name, row in table.items():
        size = int(np.prod(row["shape"]))
        held = buckets[row["bucket"]][row["offset"] : row["offset"] + size].reshape(row["shape"])
        torch.testing.assert_close(torch.from_numpy(held), gradients[name], rtol=1e-5, atol=1e-7)
    assert sum(value.size for value in buckets.values()) == sum(p.numel() for p in model.parameters())
    assert {value.dtype.name for value in buckets.values()} == {"float32", "float64"}
    entry = next(entry for entry in tagger.manifest.entries if entry.name == "gradients").signature
    assert str(entry).partition(" where")[0].endswith("'parameters': {…}}")


def test_wrong_buckets_are_named(tagger: aotpack.Model) -> None:
    context = tagger.context()
    buckets = {name: value.numpy() for name, value in context.entry("gradients")(*_batches(1, 2)[0])["buckets"].items()}
    with pytest.raises(InputError, match="bucket0"):
        context.entry("apply")({**buckets, "bucket0": buckets["bucket0"][1:]}, lr=0.1)
    with pytest.raises(InputError, match="bucket"):
        context.entry("apply")({"bucket0": buckets["bucket0"]}, lr=0.1)


@pytest.mark.parametrize("buckets", [-1, 0.5])
def test_wrong_sizes_are_named(buckets: Any) -> None:
    model, x = nn.Linear(3, 2), torch.randn(2, 3)
    options: dict[str, Any] = {"loss": F.mse_loss, "loss_args": (torch.randn(2, 2),)}
    with pytest.raises(CaptureError, match=f"buckets is {buckets}"):
        aot_export(
            model,
            (x,),
            mode="train_step",
            optimizer=_optimizer(model),
            training=TrainingOptions(buckets=buckets),
            **options,
        )


def test_a_hyperparameter_cannot_have_the_name_of_the_argument() -> None:
    def descend(parameter: Tensor, gradient: Tensor, state: dict[str, Any], *, buckets: float = 0.1) -> None:
        parameter.sub_(buckets * gradient)

    with pytest.raises(CaptureError, match="'buckets' has the name"):
        aot_export(
            nn.Linear(3, 2),
            (torch.randn(2, 3),),
            mode="train_step",
            loss=F.mse_loss,
            loss_args=(torch.randn(2, 2),),
            optimizer=descend,
            training=TrainingOptions(hyperparameters=("buckets",), buckets=True),
        )
