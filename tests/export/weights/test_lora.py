"""Partial updates and LoRA adapters on archives whose weights are folded, fused and packed, against eager."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import aotpack
from aotpack.errors import WeightsError, WeightsNotFoundError
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.support.building import check
from tests.support.torchless import Torchless

pytestmark = pytest.mark.torch


class Conv1D(nn.Module):
    """transformers' linear, whose weight is [in, out]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.2)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Net(nn.Module):
    """Linears that are fused (q, k), a table tied to a linear, a convolution into which a norm is folded, a weight that
    is [in, out], one of another dtype.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 16)
        self.q = nn.Linear(16, 24)
        self.k = nn.Linear(16, 24)
        self.conv = nn.Conv1d(24, 12, 3)
        self.norm = nn.BatchNorm1d(12)
        self.fc = Conv1D(12, 16)
        self.low = nn.Linear(16, 16, dtype=torch.bfloat16)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        x = torch.tanh(self.q(x)) * self.k(x)
        x = torch.relu(self.norm(self.conv(x.transpose(1, 2)))).transpose(1, 2)
        x = self.fc(x)
        # What bfloat16 rounds away must not show in a comparison with double.
        return self.head(x + self.low(x.to(self.low.weight.dtype)).to(x.dtype) * 3e-3)


IDS = torch.arange(12).reshape(2, 6)
FACTORS = {
    "q": ((3, 16), (24, 3)),
    "conv": ((2, 24, 3), (12, 2, 1)),
    "low": ((4, 16), (16, 4)),
}


def network(seed: int) -> Net:
    torch.manual_seed(seed)
    net = Net().eval()
    net.norm.running_mean.uniform_(-1, 1)
    net.norm.running_var.uniform_(0.5, 2)
    return net


def factors(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        f"base_model.model.{module}.lora_{name}.weight": torch.randn(shape, generator=generator) * 0.3
        for module, shapes in FACTORS.items()
        for name, shape in zip("AB", shapes, strict=True)
    }


def merged(net: Net, adapter: dict[str, Tensor], scale: Callable[[str, int], float], transposed: bool = False) -> Net:
    """The net with an adapter added to its weights."""
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    for name, down in adapter.items():
        module, is_down, _ = name.removeprefix("base_model.model.").partition(".lora_A")
        if is_down:
            up = adapter[name.replace("lora_A", "lora_B")]
            weight = state[f"{module}.weight"]
            delta = (up.double().flatten(1) @ down.double().flatten(1)) * scale(module, down.shape[0])
            weight.copy_(weight.double() + (delta.T if transposed else delta).reshape(weight.shape))
    result = network(0)
    result.load_state_dict(state)
    return result


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("lora") / "net.aotpack"
    build_archive(aot_export(network(0), (IDS,)), path, options=BuildOptions(cache_dir=cache_dir, updatable=True))
    return path


@pytest.fixture
def model(archive: Path) -> aotpack.Model:
    return aotpack.load(archive, num_threads=1)


def test_every_weight_alone(model: aotpack.Model) -> None:
    """Names that are not given have the values of the last update."""
    net, other = network(0), network(1)
    state = dict(net.state_dict())
    for name, tensor in other.state_dict().items():
        model.update_weights({name: tensor}, partial=True)
        state[name] = tensor
        if name == "table.weight":
            state["head.weight"] = tensor
        net.load_state_dict(state)
        check(model, net, (IDS,))
    assert model.weight_generation == len(state)
    model.update_weights({"q.bias": other.q.bias * 2}, partial=True, base="archive")
    net = network(0)
    net.q.bias.data = other.q.bias.data * 2
    check(model, net, (IDS,))


def test_a_forgotten_name_is_an_error(model: aotpack.Model, tmp_path: Path) -> None:
    some = {"q.weight": network(1).q.weight.detach()}
    save_file(some, tmp_path / "some.safetensors")
    for weights in (some, tmp_path / "some.safetensors"):
        with pytest.raises(WeightsError, match=r"'k\.weight' is missing"):
            model.update_weights(weights)
    with pytest.raises(WeightsError, match=r"there is no 'q\.wieght'"):
        model.update_weights({"q.wieght": some["q.weight"], **some}, partial=True)
    with pytest.raises(ValueError, match='base must be "current" or "archive"'):
        model.update_weights(some, partial=True, base="file")
    assert model.weight_generation == 0
    model.update_weights(tmp_path / "some.safetensors", partial=True)
    net = network(0)
    net.load_state_dict({**net.state_dict(), **some})
    check(model, net, (IDS,))


def test_less_memory(model: aotpack.Model) -> None:
    state = network(1).state_dict()
    model.update_weights(state, keep_originals=False)
    check(model, network(1), (IDS,))
    with pytest.raises(WeightsError, match=r"'k\.weight' is missing: it is needed, and an earlier update did not keep"):
        model.update_weights({"q.weight": state["q.weight"]}, partial=True)
    model.update_weights({"q.weight": state["q.weight"]}, partial=True, base="archive")


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({"lora_alpha": 6}, lambda module, rank: 6 / rank),
        ({"lora_alpha": 6, "use_rslora": True}, lambda module, rank: 6 / rank**0.5),
        (
            {"lora_alpha": 6.0, "alpha_pattern": {"conv": 1, "w": 5}, "peft_type": "LORA"},
            lambda module, rank: (1 if module == "conv" else 6) / rank,
        ),
    ],
    ids=["alpha", "rank-stabilised", "patterns"],
)
def test_adapter_folder(
    model: aotpack.Model, tmp_path: Path, config: dict[str, Any], scale: Callable[[str, int], float]
) -> None:
    save_file(factors(2), tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    for source in (tmp_path, str(tmp_path / "adapter_model.safetensors")):
        model.add_lora(source, base="archive", num_threads=2)
        check(model, merged(network(0), factors(2), scale), (IDS,))


def test_adapters_of_arrays(model: aotpack.Model) -> None:
    def two(module: str, rank: int) -> float:
        return 2.0

    first = factors(3)
    model.add_lora({name.removeprefix("base_model.model."): tensor for name, tensor in first.items()}, scale=2)
    net = merged(network(0), first, two)
    check(model, net, (IDS,))
    # On top of the first one; float16, bfloat16 in its two spellings, float64 with strides.
    second = {name: tensor.bfloat16().float() for name, tensor in factors(4).items()}
    second["base_model.model.q.lora_A.weight"] = second["base_model.model.q.lora_A.weight"].half().float()
    given: dict[str, Any] = {name.replace(".weight", ".default.weight"): t for name, t in second.items()}
    kinds = [
        lambda t: t.half(),
        lambda t: np.asfortranarray(t.double().numpy()),
        lambda t: t.numpy().astype(ml_dtypes.bfloat16),
        lambda t: t.numpy().astype(ml_dtypes.bfloat16).view(np.uint16),
    ]
    for name, kind in zip(list(given), kinds, strict=False):
        given[name] = kind(given[name])
    model.add_lora(given, scale=2)
    check(model, merged(net, second, two), (IDS,))
    model.reset_weights()
    check(model, network(0), (IDS,))


def test_transposed_products(model: aotpack.Model) -> None:
    """Weights that are [in, out], and embeddings; tied weights change together."""
    fc = {"fc.lora_A.weight": torch.randn(2, 12), "fc.lora_B.weight": torch.randn(16, 2)}
    model.add_lora(fc, scale=0.5, fan_in_fan_out=True)
    net = merged(network(0), fc, lambda module, rank: 0.5, transposed=True)
    check(model, net, (IDS,))
    table = {"table.lora_embedding_A": torch.randn(3, 20), "table.lora_embedding_B": torch.randn(16, 3)}
    model.add_lora(table, scale=0.5)
    net.table.weight.data += 0.5 * (table["table.lora_embedding_B"] @ table["table.lora_embedding_A"]).T
    check(model, net, (IDS,))


def test_modules_to_save(model: aotpack.Model) -> None:
    weight = torch.randn(24, 16)
    adapter = {**factors(5), "base_model.model.k.weight": weight}
    model.add_lora(adapter, scale=1)
    net = merged(network(0), factors(5), lambda module, rank: 1.0)
    net.k.weight.data = weight
    check(model, net, (IDS,))


def test_without_torch(archive: Path, tmp_path: Path) -> None:
    adapter = factors(6)
    save_file(adapter, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text('{"lora_alpha": 3, "r": 3}')
    process = Torchless()
    try:
        model = process.load(archive)
        model.method("add_lora", str(tmp_path))
        with torch.no_grad():
            expected = merged(network(0), adapter, lambda module, rank: 3 / rank)(IDS)
        np.testing.assert_allclose(np.asarray(model(IDS)), expected.numpy(), rtol=1e-2, atol=1e-2)
    finally:
        process.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("base_model.model.q.lora_B.weight"), "'q' has no tensor lora_B"),
        (
            lambda a: a.update({"x.lora_A.weight": torch.ones(1, 2), "x.lora_B.weight": torch.ones(2, 1)}),
            "no 'x.weight",
        ),
        (lambda a: a.update({"q.lora_A.weight": torch.ones(3, 16)}), "two tensors lora_A"),
        (lambda a: a.update({"q.lora_magnitude_vector": torch.ones(24)}), "lora_magnitude_vector' is not supported"),
        (lambda a: a.update({"q.lora_B.bias": torch.ones(24)}), "lora_B.bias' is not supported"),
        (lambda a: a.update({"base_model.model.q.lora_B.weight": torch.ones(24, 4)}), "'q.weight': the weight has the"),
        (lambda a: a.update({"base_model.model.q.lora_B.weight": torch.ones(24, 3).int()}), "not floating-point"),
        (lambda a: a.update({"k.base_layer.weight": torch.ones(24, 16)}), "there is no 'k.base_layer.weight'"),
        (lambda a: a.clear(), "no tensors lora_A and lora_B"),
    ],
    ids=["half", "unknown", "two", "dora", "bias", "shape", "dtype", "base layer", "empty"],
)
def test_wrong_adapters(model: aotpack.Model, change: Callable[[dict[str, Any]], Any], message: str) -> None:
    adapter: dict[str, Any] = dict(factors(7))
    change(adapter)
    with pytest.raises(WeightsError, match=message):
        model.add_lora(adapter, scale=1)
    assert model.weight_generation == 0


def test_wrong_folders(model: aotpack.Model, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="scale of the adapter is unknown"):
        model.add_lora(factors(8))
    with pytest.raises(WeightsError, match="got a int"):
        model.add_lora(3)  # type: ignore[arg-type]
    with pytest.raises(WeightsNotFoundError, match="adapter_config"):
        model.add_lora(tmp_path)
    path = tmp_path / "adapter_config.json"
    for text, message in {
        "{": "cannot be read",
        "[]": "not an object",
        "{}": "lora_alpha is None",
        '{"lora_alpha": true}': "lora_alpha is True",
        '{"lora_alpha": 1, "use_dora": true}': "'DoRA'",
        '{"lora_alpha": 1, "peft_type": "IA3"}': "'IA3'",
        '{"lora_alpha": 1, "alpha_pattern": {"(a|a)*": 2}}': r"not the end of a module's name",
        '{"lora_alpha": 1, "alpha_pattern": [1]}': "alpha_pattern",
    }.items():
        path.write_text(text)
        with pytest.raises(WeightsError, match=message):
            model.add_lora(tmp_path)
    path.write_text('{"lora_alpha": 1}')
    with pytest.raises(WeightsNotFoundError, match="adapter_model"):
        model.add_lora(tmp_path)
    assert model.weight_generation == 0
