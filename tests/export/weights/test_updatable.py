"""Archives whose weights can be replaced: what is folded and packed at build time is folded and packed anew."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.errors import BuildError, WeightsError
from aotpack.export import BuildOptions, aot_export, build_archive, without_weights
from tests.support.building import assert_close, check, in_double
from tests.support.torchless import Torchless

pytestmark = pytest.mark.torch


class Net(nn.Module):
    """One of everything: a tied table, a folded norm, an LSTM, constants of casts, a counter, an unused layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 24)
        self.conv = nn.Conv1d(24, 40, 3, padding=1)
        self.norm = nn.BatchNorm1d(40)
        self.rnn = nn.LSTM(40, 24, batch_first=True)
        self.scale = nn.Parameter(torch.rand(24) + 0.5)
        self.head = nn.Linear(24, 50, bias=False)
        self.head.weight = self.table.weight
        self.unused = nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, ids: Tensor) -> Tensor:
        self.calls.add_(1)
        x = torch.relu(self.norm(self.conv(self.table(ids).transpose(1, 2)))).transpose(1, 2)
        x, _ = self.rnn(x)
        return self.head(x * (self.scale.double() ** 2).float())


def network(seed: int) -> Net:
    torch.manual_seed(seed)
    net = Net().eval()
    net.norm.running_mean.uniform_(-1, 1)
    net.norm.running_var.uniform_(0.5, 2)
    return net


IDS = torch.arange(24).reshape(2, 12) * 2


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("updatable") / "net.aotpack"
    build_archive(aot_export(network(0), (IDS,)), path, options=BuildOptions(cache_dir=cache_dir, updatable=True))
    return path


def test_an_archive_says_what_can_be_replaced(archive: Path) -> None:
    with ArchiveReader(archive) as reader:
        weights = reader.manifest.weights
        constants = reader.manifest.constants
    assert weights is not None
    assert weights.fold is not None
    state = network(0).state_dict()
    assert {t.name: t.shape for t in weights.tensors} == {name: tuple(t.shape) for name, t in state.items()}
    kept = {t.name for t in weights.tensors if t.constant is None}
    assert kept == {"norm.num_batches_tracked", "unused.weight", "unused.bias"}
    by_name = {t.name: t.constant for t in weights.tensors}
    assert by_name["head.weight"] == by_name["table.weight"], "tied weights are one constant"
    assert all(constants[index].role in ("packed", "folded") for index in weights.fold.results)
    model = aotpack.load(archive)
    assert model.entry_names == ["forward", "fold"]


def test_new_weights_take_effect(archive: Path) -> None:
    model = aotpack.load(archive, num_threads=2)
    check(model, network(0), (IDS,))
    for seed in (1, 2):
        model.update_weights(network(seed).state_dict())
        assert model.weight_generation == seed
        check(model, network(seed), (IDS,))
    model.reset_weights()
    check(model, network(0), (IDS,))


def test_files_without_torch(archive: Path, tmp_path: Path) -> None:
    save_model(network(3), str(tmp_path / "tied.safetensors"))
    save_file({k: v.clone() for k, v in network(4).state_dict().items()}, str(tmp_path / "all.safetensors"))
    process = Torchless()
    try:
        model = process.load(archive)
        for name, seed in (("tied", 3), ("all", 4)):
            model.method("update_weights", str(tmp_path / f"{name}.safetensors"))
            with torch.no_grad():
                expected = network(seed).double()(IDS)
            assert_close(model(IDS), expected)
    finally:
        process.close()


def test_an_update_folds_as_the_build_does(archive: Path, tmp_path: Path, cache_dir: Path) -> None:
    path = tmp_path / "other.aotpack"
    build_archive(aot_export(network(5), (IDS,)), path, options=BuildOptions(cache_dir=cache_dir))
    model = aotpack.load(archive, num_threads=1)
    model.update_weights(network(5).state_dict())
    # The folding is done in double and rounded once, so both agree to the last bit or so.
    assert_close(torch.as_tensor(model(IDS)), torch.as_tensor(aotpack.load(path, num_threads=1)(IDS)).double(), 1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("conv.bias"), "conv.bias"),
        (lambda state: state.update(extra=torch.zeros(3)), "extra"),
        (lambda state: state.update({"conv.bias": torch.zeros(41)}), "conv.bias"),
        (lambda state: state.update({"conv.bias": torch.zeros(40).double()}), "conv.bias"),
        (lambda state: state.update({"unused.bias": torch.zeros(5)}), "unused.bias"),
        (lambda state: state.update({"head.weight": torch.zeros(50, 24)}), "head.weight"),
    ],
    ids=["missing", "extra", "shape", "dtype", "unused", "tied apart"],
)
def test_a_wrong_update_is_refused_whole(
    archive: Path, change: Callable[[dict[str, Tensor]], Any], message: str
) -> None:
    model = aotpack.load(archive, num_threads=1)
    before = model(IDS)
    state = dict(network(6).state_dict())
    change(state)
    with pytest.raises(WeightsError, match=message):
        model.update_weights(state)
    assert model.weight_generation == 0
    assert torch.equal(model(IDS), before)


def test_calls_see_one_set_while_another_comes(archive: Path) -> None:
    model = aotpack.load(archive, num_threads=1)
    states = [network(seed).state_dict() for seed in (7, 8)]
    outputs = []
    for state in states:
        model.update_weights(state)
        outputs.append(np.array(model(IDS.numpy())))
    done, seen, wrong = threading.Event(), set(), []

    def call() -> None:
        while not done.is_set():
            result = model(IDS.numpy())
            match = [i for i, output in enumerate(outputs) if np.array_equal(result, output)]
            seen.update(match)
            if not match:
                wrong.append(result)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for step in range(100):
        model.update_weights(states[step % 2])
        time.sleep(0.005)  # or this thread keeps the interpreter to itself
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert seen == {0, 1}
    assert model.weight_generation == 102


def test_state_outlives_an_update(archive: Path) -> None:
    model = aotpack.load(archive, num_threads=1)
    context = model.context()
    context(IDS)
    model.update_weights(network(9).state_dict())
    context(IDS)
    assert int(np.asarray(context.state()["calls"])) == 2
    state = dict(network(9).state_dict(), calls=torch.tensor(40))
    model.update_weights(state)
    context.reset()
    context(IDS)
    assert int(np.asarray(context.state()["calls"])) == 41


def test_a_function_has_no_weights(tmp_path: Path, cache_dir: Path) -> None:
    weight = torch.randn(4, 4)
    program = aot_export(lambda x: x @ weight, (torch.randn(2, 4),))
    with pytest.raises(BuildError, match="no state dict"):
        build_archive(program, tmp_path / "f.aotpack", options=BuildOptions(cache_dir=cache_dir, updatable=True))


def test_a_frozen_archive_refuses(tmp_path: Path, cache_dir: Path) -> None:
    module = nn.Linear(4, 4).eval()
    path = tmp_path / "frozen.aotpack"
    build_archive(aot_export(module, (torch.randn(2, 4),)), path, options=BuildOptions(cache_dir=cache_dir))
    model = aotpack.load(path)
    assert model.weights == {}
    with pytest.raises(WeightsError, match="frozen"):
        model.update_weights(module.state_dict())


class TestStreaming:
    def test_weights_stay_in_their_file(self, tmp_path: Path, cache_dir: Path) -> None:
        eager = network(10)
        save_model(eager, str(tmp_path / "net.safetensors"))
        with without_weights():
            module = Net()
        assert all(p.is_meta for p in module.parameters())
        program = aot_export(module.eval(), (IDS,), weights=tmp_path / "net.safetensors")
        assert all(p.is_meta for p in module.parameters()), "the module is as it was"
        path = tmp_path / "net.aotpack"
        build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, updatable=True))
        model = aotpack.load(path, num_threads=1)
        check(model, eager, (IDS,))
        model.update_weights(network(11).state_dict())
        check(model, network(11), (IDS,))

    def test_the_archive_is_that_of_weights_in_memory(self, tmp_path: Path, cache_dir: Path) -> None:
        eager = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 3)).eval()
        save_model(eager, str(tmp_path / "mlp.safetensors"))
        x = torch.randn(2, 8)
        with without_weights():
            module = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 3)).eval()
        programs = [aot_export(eager, (x,)), aot_export(module, (x,), weights=str(tmp_path / "mlp.safetensors"))]
        paths = [tmp_path / "a.aotpack", tmp_path / "b.aotpack"]
        for program, path in zip(programs, paths, strict=True):
            options = BuildOptions(cache_dir=cache_dir, goldens=False)
            build_archive(program, path, name="mlp", options=options)
        assert paths[0].read_bytes() == paths[1].read_bytes()

    def test_files_that_do_not_fit(self, tmp_path: Path) -> None:
        state = {name: t.clone() for name, t in network(0).state_dict().items() if name != "head.weight"}
        state["conv.bias"] = torch.zeros(3)
        del state["scale"]
        state["other"] = torch.zeros(1)
        save_file(state, str(tmp_path / "wrong.safetensors"))
        with without_weights():
            module = Net()
        with pytest.raises(BuildError) as caught:
            aot_export(module.eval(), (IDS,), weights=tmp_path / "wrong.safetensors")
        for part in ("no tensor 'scale'", "has no 'other'", "'conv.bias' is [3], the model has [40]"):
            assert part in str(caught.value)


def test_freeing_keeps_what_others_hold(tmp_path: Path, cache_dir: Path) -> None:
    module = nn.Linear(4, 4).eval()
    held = module.weight.detach()
    wanted, x = copy.deepcopy(module).double(), torch.randn(2, 4)
    path = tmp_path / "freed.aotpack"
    options = BuildOptions(cache_dir=cache_dir, free_source=True)
    build_archive(aot_export(module, (x,)), path, options=options)
    assert torch.equal(held, wanted.weight.detach().float())
    assert module.weight.numel() == 0
    assert_close(aotpack.load(path)(x), wanted(in_double(x)))
