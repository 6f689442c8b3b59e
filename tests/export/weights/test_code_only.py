"""Archives without weights: built from any weights or from none, they are the same, and packing makes them run."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.errors import BuildError, CaptureError, MissingWeightsError
from aotpack.export import BuildOptions, aot_export, build_archive, without_weights
from aotpack.runtime.packing import pack_weights
from tests.support.building import assert_close

pytestmark = pytest.mark.torch


class Net(nn.Module):
    """Folded norms, packed and tied linears, a single number, a cast, a counter, a table that no file has."""

    table: Tensor
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 24, 3, padding=1)
        self.norm = nn.BatchNorm2d(24)
        self.first = nn.Linear(24, 40)
        self.second = nn.Linear(40, 40, bias=False)
        self.third = nn.Linear(40, 40)
        self.third.weight = self.second.weight
        self.gain = nn.Parameter(torch.tensor(0.75))
        self.shift = nn.Parameter(torch.rand(40))
        self.unused = nn.Linear(2, 2)
        self.register_buffer("table", torch.linspace(0, 1, 40), persistent=False)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, image: Tensor) -> Tensor:
        self.calls.add_(1)
        x = torch.relu(self.norm(self.conv(image))).mean((2, 3))
        x = self.third(torch.tanh(self.second(self.first(x)))) * self.gain + self.calls
        return x + (self.shift.double() ** 2).to(x.dtype) * self.table


def network(seed: int, scale: float = 1) -> Net:
    torch.manual_seed(seed)
    net = Net().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(scale)
        net.gain.fill_(seed + 0.5)
    net.norm.running_mean.uniform_(-1, 1)
    net.norm.running_var.uniform_(0.5, 2)
    net.calls.fill_(seed)
    return net


def transformer(dtype: torch.dtype) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=64,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return LlamaForCausalLM(config).eval().to(dtype)


def code_only(model: nn.Module, args: tuple[Any, ...], path: Path, cache: Path, **options: Any) -> Path:
    chosen = BuildOptions(cache_dir=cache, code_only=True, opt_level=1)
    report = build_archive(aot_export(model, args, **options), path, name="model", options=chosen)
    assert report.check.skipped == "the archive has no weights"
    with pytest.raises(MissingWeightsError, match="aotpack pack"):
        aotpack.load(path)
    return path


def packed(code: Path, weights: Path) -> aotpack.Model:
    path = code.with_suffix(".packed.aotpack")
    pack_weights(code, weights, path)
    return aotpack.load(path, verify="full", num_threads=2)


def bytes_by_name(path: Path) -> dict[str, bytes]:
    with ArchiveReader(path) as reader:
        return {constant.name: reader.constant(i) for i, constant in enumerate(reader.manifest.constants)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_weight_is_in_the_code(dtype: torch.dtype, tmp_path: Path, cache_dir: Path) -> None:
    image = (torch.randn(2, 3, 6, 6, dtype=dtype),)
    other = network(3, scale=100).to(dtype)
    codes = [code_only(other, image, tmp_path / "other.aotpack", cache_dir)]
    with without_weights():
        bare = network(1).to(dtype)
    assert bare.conv.weight.is_meta
    codes.append(code_only(bare, image, tmp_path / "bare.aotpack", cache_dir))
    # Nothing in the code depends on the weights that the model had, or on memory that it did not have.
    assert codes[0].read_bytes() == codes[1].read_bytes()
    with ArchiveReader(codes[0]) as reader:
        present = [constant.name for constant in reader.manifest.constants if constant.location]
        absent = {constant.name for constant in reader.manifest.absent}
    assert present == ["fold._tensor_constant0"], "the table, which no file has"
    assert absent > {"gain", "calls", "conv.weight", "norm.running_var", "first.weight"}
    net = network(2).to(dtype)
    save_model(net, str(tmp_path / "new.safetensors"))
    context = packed(codes[1], tmp_path / "new.safetensors").context()
    exact = copy.deepcopy(net).double()
    for _ in range(2):
        assert_close(context(*image), exact(image[0].double()), 1e-4 if dtype is torch.float32 else 2e-2)


def test_packing_makes_what_a_build_makes(tmp_path: Path, cache_dir: Path) -> None:
    image = (torch.randn(2, 3, 6, 6),)
    net = network(4)
    save_file({name: value.clone() for name, value in net.state_dict().items()}, tmp_path / "w.safetensors")
    packed(code_only(network(5), image, tmp_path / "code.aotpack", cache_dir), tmp_path / "w.safetensors")
    options = BuildOptions(cache_dir=cache_dir, updatable=True, opt_level=1)
    build_archive(aot_export(net, image), tmp_path / "whole.aotpack", name="model", options=options)
    whole, made = bytes_by_name(tmp_path / "whole.aotpack"), bytes_by_name(tmp_path / "code.packed.aotpack")
    assert whole.keys() == made.keys()
    # What is folded is computed by torch in the build, and by compiled code here.
    assert {name for name in whole if whole[name] != made[name]} <= {name for name in whole if "_bn" in name}
    pack_weights(tmp_path / "whole.aotpack", tmp_path / "w.safetensors", tmp_path / "again.aotpack")
    assert (tmp_path / "again.aotpack").read_bytes() == (tmp_path / "code.packed.aotpack").read_bytes()


def test_a_transformer_on_the_meta_device(tmp_path: Path, cache_dir: Path) -> None:
    ids = (torch.arange(10).reshape(2, 5) * 3,)
    with without_weights():
        bare = transformer(torch.bfloat16)
    assert bare.lm_head.weight is bare.model.embed_tokens.weight
    assert bare.lm_head.weight.is_meta
    batch = aotpack.Dim("batch", 1, 8)
    code = code_only(bare, ids, tmp_path / "code.aotpack", cache_dir, dynamic_shapes={"input_ids": {0: batch}})
    torch.manual_seed(1)
    model = transformer(torch.bfloat16)
    model.save_pretrained(tmp_path / "saved", max_shard_size="8KB")
    index = tmp_path / "saved" / "model.safetensors.index.json"
    assert "lm_head.weight" not in index.read_text()
    archive = packed(code, index)
    exact = copy.deepcopy(model).double()
    for rows in (1, 7):
        tokens = torch.randint(64, (rows, 5))
        with torch.no_grad():
            wanted = exact(tokens).logits
        assert_close(archive(input_ids=tokens)["logits"], wanted, 3e-2)


def test_buffers_that_no_file_has_need_values(tmp_path: Path, cache_dir: Path) -> None:
    with torch.device("meta"):
        net = Net().eval()
    with pytest.raises(BuildError, match=r"not in its state dict.*: 'table'") as info:
        code_only(net, (torch.randn(2, 3, 6, 6),), tmp_path / "code.aotpack", cache_dir)
    assert "without_weights" in str(info.value.hint)
    assert not list(tmp_path.iterdir())


class Doubled(nn.Module):
    """Reads a product of a weight that is computed when the model is created."""

    def __init__(self, *, once: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4))
        self.twice = self.weight.detach() * 2 if once else None

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.weight * 2 if self.twice is None else self.twice)


@pytest.mark.parametrize(
    ("once", "options", "message", "hint"),
    [
        (True, {"code_only": True}, "example call fails on a model without weights", "'twice'"),
        (False, {}, "no values for 'weight': they are on the meta device", "--code-only"),
        (False, {"updatable": True}, "no values for 'weight': they are on the meta device", "--code-only"),
    ],
)
def test_missing_values_are_named(
    once: bool, options: dict[str, Any], message: str, hint: str, tmp_path: Path, cache_dir: Path
) -> None:
    with torch.device("meta"):
        model = Doubled(once=once).eval()
    chosen = BuildOptions(cache_dir=cache_dir, **options)
    with pytest.raises(BuildError, match=message) as info:
        build_archive(aot_export(model, (torch.randn(4),)), tmp_path / "out.aotpack", options=chosen)
    assert hint in str(info.value.hint)


def test_models_that_need_their_weights(tmp_path: Path, cache_dir: Path) -> None:
    x = torch.randn(2, 3)
    chosen = BuildOptions(cache_dir=cache_dir, code_only=True)
    with pytest.raises(BuildError, match="has no state dict"):
        build_archive(aot_export(lambda t: t * 2, (x,)), tmp_path / "out.aotpack", options=chosen)
    with torch.device("meta"):
        loss = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    with pytest.raises(CaptureError, match="is on meta"):
        aot_export(loss, (x,), mode="joint")
    with pytest.raises(CaptureError, match="is on meta"):
        aot_export(nn.Linear(3, 1), (x.to("meta"),))
