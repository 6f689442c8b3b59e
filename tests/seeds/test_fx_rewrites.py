"""Rewrites and fusions of section 003: operators replaced over a program, batch norms folded, dropouts removed, and the
program as a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack.archive import read_manifest
from aotpack.export import BuildOptions, Program, aot_export, build_archive, rewrite_pattern
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.runner import run_passes
from aotpack.runtime.packing import pack_folder, unpack
from tests.support.building import assert_close
from tests.support.torchless import RemoteModel, Torchless

pytestmark = pytest.mark.torch
aten = torch.ops.aten
Build = Callable[..., RemoteModel]


def operators(program: Program) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def common(model: nn.Module, *args: Tensor) -> Program:
    """The program after the passes for all devices, which answers as eager does."""
    program = run_passes(aot_export(model, args), COMMON)
    with torch.no_grad():
        assert_close(program.runnable()(*args)[0], model(*args))
    return program


def test_replace_target_nodes_with(tmp_path: Path, cache_dir: Path, torchless: Torchless) -> None:
    """Every sum becomes a product, in the whole program and in the archive."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.param = nn.Parameter(torch.rand(1, 3))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            z = torch.add(x, self.param)
            return (z + y).relu() - x

    @rewrite_pattern(torch.ops.aten.add)
    def multiply(x: Tensor, y: Tensor) -> Tensor:
        """Replaces sums by products."""
        return torch.mul(x, y)

    model, args = Model(), (torch.randn(2, 3), torch.randn(2, 3))
    program = aot_export(model, args)
    products = ["aten.mul.Tensor", "aten.mul.Tensor"]
    assert operators(multiply(program)) == [*products, "aten.relu.default", "aten.sub.Tensor"]
    path = tmp_path / "m.aotpack"
    # The example of the model is no example of what it becomes.
    options = BuildOptions(cache_dir=cache_dir, opt_level=1, check=False, goldens=False)
    build_archive(program, path, passes=[multiply], options=options)
    x, y = args
    assert_close(torchless.load(path)(x, y), (x * model.param * y).relu().detach() - x)


class ConvBn(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.bn = nn.BatchNorm2d(4, **options)
        with torch.no_grad():
            for name, tensor in self.bn.state_dict().items():
                if tensor.is_floating_point():
                    tensor.uniform_(0.5, 1.5) if "var" in name or "weight" in name else tensor.normal_()

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x))


def test_conv_bn_fusion(build: Build) -> None:
    """A norm with running statistics becomes part of the convolution."""
    model, x = ConvBn().eval(), torch.randn(2, 3, 8, 8)
    assert operators(common(model, x)) == ["aten.conv2d.default"]
    with torch.no_grad():
        assert_close(build(model, (x,))(x), model(x))


def test_conv_bn_fusion_not_running_state() -> None:
    """A norm without running statistics depends on the values: it stays."""
    model = ConvBn(track_running_stats=False).eval()
    found = operators(common(model, torch.randn(2, 3, 8, 8)))
    assert found[0] == "aten.conv2d.default"
    assert any("batch_norm" in name for name in found)


def test_conv_bn_fusion_mixed_dtype() -> None:
    """A norm in single precision of a convolution in half: folded, in the dtypes that eager computes with."""
    model = ConvBn().eval()
    model.conv.to(torch.bfloat16)
    x = torch.randn(2, 3, 8, 8, dtype=torch.bfloat16)
    program = run_passes(aot_export(model, (x,)), COMMON)
    assert not any("batch_norm" in name for name in operators(program))
    with torch.no_grad():
        expected = model(x)
    (actual,) = program.runnable()(x)
    assert actual.dtype == expected.dtype
    assert_close(actual.float(), expected.float(), tolerance=2e-2)


def test_optimize_for_inference_cpu(build: Build) -> None:
    """Dropouts go, and chains of convolution, norm and activation become one kernel each; models of vision:
    tests/export/passes/test_vision.py.
    """

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[nn.Module] = []
            for _ in range(2):
                layers += [nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Dropout(), nn.ReLU()]
            self.layers = nn.Sequential(*layers)

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x)

    model, x = Model().eval(), torch.randn(1, 3, 8, 8)
    found = operators(common(model, x))
    assert found == ["aten.conv2d.default", "aten.relu.default"] * 2
    archive = build(model, (x,))
    with torch.no_grad():
        assert_close(archive(x), model(x))
    (entry,) = read_manifest(Path(archive.path)).entries
    kernels = [kernel.name for kernel in entry.variants[0].modules[0].kernels]
    assert len([name for name in kernels if "conv" in name]) == 2
    assert not any("relu" in name for name in kernels)


def test_to_folder(tmp_path: Path, cache_dir: Path, torchless: Torchless) -> None:
    """A program and its sources as a folder to read, and the archive of the folder. (test_sources.py builds one.)"""

    class Model(nn.Module):
        buffer: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3))
            self.register_buffer("buffer", torch.randn(3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x * self.weight + self.buffer)

    model, x = Model(), torch.randn(2, 3)
    path, folder, back = tmp_path / "m.aotpack", tmp_path / "folder", tmp_path / "back.aotpack"
    options = BuildOptions(cache_dir=cache_dir, opt_level=1, sources=True)
    build_archive(aot_export(model, (x,)), path, options=options)
    unpack(path, folder)
    (program,) = folder.glob("src/*/forward/program.txt")
    text = program.read_text()
    assert "torch.ops.aten.relu.default" in text
    assert 'weight: "f32[3]" = self.weight' in text
    assert 'buffer: "f32[3]" = self.buffer' in text
    assert "cpp_fused" in (program.parent / "wrapper.cpp").read_text()
    pack_folder(folder, back)
    with torch.no_grad():
        assert_close(torchless.load(back)(x), model(x))
