"""Classic vision models: what the passes leave for run time, seen from inside the operators of a running archive.

Each with one of the blocks that repeat in a row: the blocks before and behind are of the same kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aotpack.archive import ArchiveReader
from aotpack.export import BuildOptions, Program, aot_export, build_archive
from aotpack.export.driver import prepare
from aotpack.export.passes.runner import Step, run_passes
from bench import models, vision
from tests.support.building import assert_close
from tests.support.torchless import Torchless

pytestmark = pytest.mark.torch

aten = torch.ops.aten
SIZE = 96


@dataclass(frozen=True)
class Expected:
    """What a model may cost: copies of activations into other layouts per call, and padding of its packed weights."""

    copies: int
    padding: float = 1.02


# The image comes in contiguous and is brought into channels-last once; where a padding or a norm does that, not even
# that copy is left. ShuffleNet shuffles channels, and convolves halves of them: without copies. Its 58 outputs fill
# panels of 32 badly. Weights of 3 x 3 convolutions that are transformed for Winograd's algorithm may add a quarter.
MODELS = {
    "resnet18": Expected(1, 1.27),
    "resnet50": Expected(1, 1.27),
    "mobilenetv2": Expected(1),
    "convnext": Expected(1),
    "vgg16": Expected(1, 1.27),
    "densenet121": Expected(1, 1.27),
    "shufflenet": Expected(1, 1.05),
    "mnasnet": Expected(1),
    "resnext50": Expected(1),
}


# Layers of DenseNet differ in their widths alone; nearly all of VGG's weights are in two linear layers.
SMALLER: dict[str, Callable[[], nn.Module]] = {
    "densenet121": lambda: vision.DenseNet121((2, 2, 2, 2)),
    "vgg16": lambda: vision.Vgg16(128),
}


@dataclass(frozen=True)
class Process:
    """A runtime whose operators note what they are given."""

    runtime: Torchless
    trace: Path


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    trace = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    runtime = Torchless({"AOTPACK_TRACE_FILE": str(trace)})
    yield Process(runtime, trace)
    runtime.close()


# Of section 003, whose eight models also have to be faster than eager: `python -m bench.run` compares them.
@pytest.mark.parametrize("name", MODELS)
def test_optimize_for_inference_cpu_torchvision(
    name: str, process: Process, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = _model(name)
    x = torch.randn(1, 3, SIZE, SIZE)
    path = tmp_path / "model.aotpack"
    monkeypatch.setenv("AOTPACK_TRACE", "1")
    after = _built(aot_export(module, (x,)), path, cache_dir, monkeypatch)
    assert not [n for n in after.graph.nodes if n.op == "call_function" and "batch_norm" in str(n.target)]

    fresh = torch.randn(1, 3, SIZE, SIZE)
    with torch.no_grad():
        wanted = module.double()(fresh.double())
    process.trace.unlink(missing_ok=True)
    assert_close(process.runtime.load(path, num_threads=2)(fresh), wanted)
    calls: list[dict[str, Any]] = [json.loads(line) for line in process.trace.read_text().splitlines()]
    products = [call for call in calls if call["op"] in ("packed_conv", "packed_linear", "depthwise_block")]
    assert len(products) >= 13
    others = {call["op"] for call in calls} - {call["op"] for call in products}
    assert others <= {"to_layout", "attention", "interleave", "layer_norm", "max_pool"}
    pools = [call for call in calls if call["op"] == "max_pool"]
    relaid = [(call["op"], t["role"]) for call in (*products, *pools) for t in call["tensors"] if t["relaid"]]
    assert not relaid, "an operator had to bring an operand into another layout"
    assert sum(call["op"] == "to_layout" for call in calls) <= MODELS[name].copies

    with ArchiveReader(path) as reader:
        files = reader.manifest.files
        code = sum(file.size for file in files if file.path.startswith("modules/"))
        distinct = {p.untyped_storage()._cdata: p.numel() * 4 for p in module.parameters()}
        assert reader.size <= MODELS[name].padding * (sum(distinct.values()) + code)


def _model(name: str) -> nn.Module:
    if name in SMALLER:
        torch.manual_seed(0)
        module = SMALLER[name]()
        models.settle_batch_norms(module)
        return module.eval()
    module, _ = models.build(name)
    for part in list(module.modules()):
        if isinstance(part, (nn.Sequential, nn.ModuleList)):
            for i in reversed(range(1, len(part))):
                if repr(part[i]) == repr(part[i - 1]):
                    del part[i]
    return module


def _built(program: Program, path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Builds an archive; returns the program that its module is made from, after all passes."""
    after: list[Program] = []

    def noted(program: Program, passes: Sequence[Step]) -> Program:
        after.append(run_passes(program, passes))
        return after[-1]

    monkeypatch.setattr(prepare, "run_passes", noted)
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, goldens=False))
    # The common passes, then those of the one backend.
    assert len(after) == 2
    return after[-1]
