"""Entries of several steps, of modules that builds have made, against eager: in Python and through the C interface."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import aotpack
from aotpack import Dim
from aotpack.archive import ArchiveReader, read_manifest
from aotpack.errors import ExecutionError
from aotpack.export import aot_export, build_archive
from aotpack.spec import TensorSpec
from tests.support.c_api import CError, CModel
from tests.support.splice import Part, splice


class Encode(nn.Module):
    """A convolution, whose output is channels-last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(image))


class Count(nn.Module):
    """Adds how often it was called to its input, in place, and returns means; has state."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, total: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        total += self.calls
        return hidden.mean((2, 3)) + self.calls


class Choose(nn.Module):
    """The rows whose first element is positive: how many is known by the data only."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows[rows[:, 0] > 0]


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 5)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.linear(rows).softmax(-1)


class Gather(nn.Module):
    """Fails where an index is out of range."""

    def forward(self, rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return rows[index] * 2


BATCH = Dim("batch", 1, 16)
SIDE = Dim("side", 4, 32)
IMAGE = {0: BATCH, 2: SIDE, 3: SIDE}
COUNT = {"total": {}, "hidden": IMAGE}
ROWS = Dim("rows", 0, 1024)


@pytest.fixture(scope="module")
def models() -> dict[str, nn.Module]:
    torch.manual_seed(3)
    return {type(model).__name__: model.eval() for model in (Encode(), Count(), Choose(), Head(), Gather())}


@pytest.fixture(scope="module")
def built(models: dict[str, nn.Module], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The archive of a model by the name of its class."""
    folder = tmp_path_factory.mktemp("parts")
    image = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    examples = {
        "Encode": ((image,), {"image": IMAGE}),
        "Count": ((torch.zeros(4), torch.randn(2, 8, 8, 8).contiguous(memory_format=torch.channels_last)), COUNT),
        "Choose": ((torch.randn(6, 8),), {"rows": {0: ROWS}}),
        "Head": ((torch.randn(6, 8),), {"rows": {0: ROWS}}),
        "Gather": ((torch.randn(6, 8), torch.tensor([0, 1])), {"rows": {0: Dim("rows", 2, 1024)}, "index": {}}),
    }

    def get(name: str) -> Path:
        path = folder / f"{name}.aotpack"
        if not path.exists():
            args, shapes = examples[name]
            build_archive([aot_export(models[name], args, dynamic_shapes=shapes)], path)
        return path

    return get


def inputs_of(path: Path) -> tuple[TensorSpec, ...]:
    return read_manifest(path).entries[0].inputs


def outputs_of(path: Path) -> tuple[TensorSpec, ...]:
    return read_manifest(path).entries[0].outputs


def named(spec: TensorSpec, name: str, **changes: object) -> TensorSpec:
    return dataclasses.replace(spec, name=name, **changes)  # type: ignore[arg-type]


def close(actual: np.ndarray, expected: torch.Tensor) -> None:
    assert actual.shape == tuple(expected.shape)
    np.testing.assert_allclose(actual, expected.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_two_steps_with_dynamic_sizes_and_a_channels_last_value(
    models: dict[str, nn.Module], built: Callable[[str], Path], tmp_path: Path
) -> None:
    encode, count = built("Encode"), built("Count")
    total, seen = inputs_of(count)
    hidden = named(outputs_of(encode)[0], "hidden")
    assert hidden.order == seen.order == (0, 2, 3, 1)
    path = splice(
        tmp_path / "two.aotpack",
        [
            Part(encode, ("input 1",), ("value 0",)),
            Part(count, ("input 0", "value 0"), ("output 0",)),
        ],
        dims=read_manifest(encode).entries[0].dims,
        inputs=[total, inputs_of(encode)[0]],
        outputs=[named(outputs_of(count)[0], "means")],
        values=[hidden],
    )
    with ArchiveReader(path) as reader:
        reader.verify()
        assert len(reader.manifest.entries[0].variants[0].implementations[0].steps) == 2
    context = aotpack.load(path, verify="full").context()
    c_model = CModel(path)
    eager = Count()
    for size, side in ((1, 4), (16, 32), (3, 5), (2, 8)):
        image = torch.randn(size, 3, side, side)
        wanted_total = torch.arange(4.0)
        expected = eager(wanted_total, models["Encode"](image))
        in_python, in_c = np.arange(4, dtype=np.float32), np.arange(4, dtype=np.float32)
        (means,) = context(in_python, image.numpy())
        close(np.asarray(means), expected)
        close(in_python, wanted_total)
        (means,) = c_model.run("forward", [in_c, image.numpy()])
        close(means, expected)
        close(in_c, wanted_total)
        assert {name: np.asarray(value).item() for name, value in context.state().items()} == {
            "1.calls": float(eager.calls)
        }
    c_model.reset_state()
    context.reset()
    total_again = np.zeros(4, np.float32)
    context(total_again, image.numpy())
    assert total_again[0] == 1
    c_model.close()


def test_three_steps_with_a_size_out_of_the_data(
    models: dict[str, nn.Module], built: Callable[[str], Path], tmp_path: Path
) -> None:
    choose, head = built("Choose"), built("Head")
    (rows,) = inputs_of(choose)
    (chosen,) = outputs_of(choose)
    twice = named(outputs_of(head)[0], "result", shape=(chosen.shape[0], 5))
    path = splice(
        tmp_path / "three.aotpack",
        [
            Part(choose, ("input 0",), ("value 0",)),
            Part(choose, ("value 0",), ("output 1",)),  # all of them, once more
            Part(head, ("output 1",), ("output 0",)),
        ],
        dims=read_manifest(choose).entries[0].dims,
        inputs=[rows],
        outputs=[twice, named(chosen, "chosen")],
        values=[named(chosen, "first")],
    )
    model = aotpack.load(path)
    context = model.context()
    c_model = CModel(path)
    for size in (6, 0, 1, 1024, 7):
        given = torch.randn(size, 8)
        kept = models["Choose"](given)
        for result, chosen_rows in (context(given.numpy()), c_model.run("forward", [given.numpy()])):
            close(np.asarray(chosen_rows), kept)
            close(np.asarray(result), models["Head"](kept))
    c_model.close()


def test_a_step_that_fails_in_the_middle(
    models: dict[str, nn.Module], built: Callable[[str], Path], tmp_path: Path
) -> None:
    head, gather = built("Head"), built("Gather")
    (rows,) = inputs_of(head)
    index = inputs_of(gather)[1]
    path = splice(
        tmp_path / "failing.aotpack",
        [
            Part(gather, ("input 0", "input 1"), ("value 0",)),
            Part(gather, ("value 0", "input 2"), ("value 1",)),
            Part(head, ("value 1",), ("output 0",)),
        ],
        dims=read_manifest(head).entries[0].dims,
        inputs=[rows, index, named(index, "again")],
        outputs=[named(outputs_of(head)[0], "result", shape=(2, 5))],
        values=[named(outputs_of(gather)[0], "one"), named(outputs_of(gather)[0], "two")],
    )
    context = aotpack.load(path).context()
    c_model = CModel(path)
    given = torch.randn(6, 8)
    first, second = torch.tensor([3, 1]), torch.tensor([1, 0])
    expected = models["Head"](models["Gather"](models["Gather"](given, first), second))
    wrong = np.array([0, 2])  # the second step has two rows
    for _ in range(3):
        with pytest.raises(ExecutionError, match=r"entry 'forward', step 2: .*out of range"):
            context(given.numpy(), first.numpy(), wrong)
        with pytest.raises(CError, match=r"entry 'forward', step 2: .*out of range"):
            c_model.run("forward", [given.numpy(), first.numpy(), wrong])
        with pytest.raises(ExecutionError, match=r"entry 'forward', step 1: .*out of range"):
            context(given.numpy(), np.array([6, 0]), second.numpy())
        (result,) = context(given.numpy(), first.numpy(), second.numpy())
        close(np.asarray(result), expected)
        (result,) = c_model.run("forward", [given.numpy(), first.numpy(), second.numpy()])
        close(result, expected)
    c_model.close()


def test_logical_devices_and_host_steps_on_the_cpu(
    models: dict[str, nn.Module], built: Callable[[str], Path], tmp_path: Path
) -> None:
    """All devices are the CPU, where memory of one is memory of all."""
    head, choose = built("Head"), built("Choose")
    (rows,) = inputs_of(head)
    (chosen,) = outputs_of(choose)
    path = splice(
        tmp_path / "devices.aotpack",
        [
            Part(choose, ("input 0",), ("value 0",), device=None),
            Part(head, ("value 0",), ("output 0",), device=1),
        ],
        dims=read_manifest(head).entries[0].dims,
        inputs=[dataclasses.replace(rows, device=None)],
        outputs=[named(outputs_of(head)[0], "result", shape=(chosen.shape[0], 5), device=1)],
        values=[named(chosen, "kept", device=0)],
        devices=("first", "second"),
    )
    given = torch.randn(9, 8)
    (result,) = aotpack.load(path).context()(given.numpy())
    close(np.asarray(result), models["Head"](models["Choose"](given)))
