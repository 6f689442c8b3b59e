"""The pass that makes one call of a depthwise convolution and the pointwise ones around it, and archives with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive, ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import bound_arguments
from aotpack.export.passes.cpu.fuse_depthwise import fuse_depthwise
from aotpack.export.passes.cpu.fuse_epilogue import fuse_epilogue
from aotpack.export.passes.cpu.pack_conv import pack_conv
from tests.export.pass_checks import calls, count, run

_PASSES = (pack_conv, fuse_epilogue, fuse_depthwise)
_WIDE = (1, 16, 48, 48)


class Block(nn.Module):
    """An inverted residual of MobileNetV2."""

    def __init__(self, c: int = 16, wide: int = 64, oc: int = 16, kernel: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.expand = nn.Conv2d(c, wide, 1)
        self.filter = nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide)
        self.project = nn.Conv2d(wide, oc, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(F.relu6(self.filter(F.relu6(self.expand(x)))))
        return x + y if y.shape == x.shape else y


class With(Block):
    """Its layers, put together by a function."""

    def __init__(self, function: Callable[..., Any], **sizes: int) -> None:
        super().__init__(**sizes)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def fused(model: nn.Module, shape: tuple[int, ...] = _WIDE) -> Program:
    return run(model.eval(), (torch.randn(shape),), *_PASSES)


def parts(program: Program) -> list[tuple[bool, bool]]:
    """Of each block, whether it expands, and whether it projects."""
    found = (bound_arguments(call) for call in calls(program, ops.depthwise_block))
    return [(block["expand_weight"] is not None, block["project_weight"] is not None) for block in found]


class TestWhatIsFused:
    @pytest.mark.parametrize(("oc", "kernel", "stride"), [(16, 3, 1), (24, 3, 2), (16, 5, 1), (16, 4, 2)])
    def test_a_block(self, oc: int, kernel: int, stride: int) -> None:
        program = fused(Block(oc=oc, kernel=kernel, stride=stride))
        assert parts(program) == [(True, True)]
        assert not count(program, ops.packed_conv, torch.ops.aten.add.Tensor)
        (block,) = calls(program, ops.depthwise_block)
        assert bound_arguments(block)["acts"] == [8, 8, 0]

    def test_without_an_expansion(self) -> None:
        program = fused(With(lambda m, x: m.project(F.relu(m.filter(x)))), (1, 64, 48, 48))
        assert parts(program) == [(False, True)]

    def test_without_a_projection(self) -> None:
        # As in EfficientNets: a pooling of the channels comes between.
        def squeezed(m: With, x: Tensor) -> Tensor:
            y = F.silu(m.filter(F.silu(m.expand(x))))
            scaled: Tensor = m.project(y * torch.sigmoid(y.mean((2, 3), keepdim=True)))
            return scaled

        program = fused(With(squeezed))
        assert (parts(program), count(program, ops.packed_conv)) == ([(True, False)], 1)

    def test_a_chain_of_separable_convolutions(self) -> None:
        # As in MobileNetV1: what is behind one is before the next.
        class Chain(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.ModuleList(
                    layer for _ in range(3) for layer in (nn.Conv2d(32, 32, 3, 1, 1, groups=32), nn.Conv2d(32, 32, 1))
                )

            def forward(self, x: Tensor) -> Tensor:
                for layer in self.layers:
                    x = F.relu(layer(x))
                return x

        assert parts(fused(Chain(), (1, 32, 64, 64))) == [(False, True)] * 3

    def test_uneven_padding(self) -> None:
        # As in models of TensorFlow.
        program = fused(
            With(
                lambda m, x: m.project(F.conv2d(F.pad(m.expand(x), (0, 1, 0, 1)), m.filter.weight, stride=2, groups=64))
            )
        )
        assert parts(program) == [(True, True)]
        (block,) = calls(program, ops.depthwise_block)
        assert bound_arguments(block)["padding"] == [0, 0, 1, 1]


class TestWhatIsNot:
    @pytest.mark.parametrize(
        ("function", "expected"),
        [
            (lambda m, x: (m.project(m.filter(e := m.expand(x))), e), [(False, True)]),
            (lambda m, x: (m.project(f := m.filter(m.expand(x))), f), [(True, False)]),
            (lambda m, x: m.project(m.filter(m.expand(x) + x.mean())), [(False, True)]),
            (lambda m, x: m.project((y := m.expand(x)) + m.filter(y)), []),
            (lambda m, x: m.project(m.filter(m.expand(x)).transpose(2, 3)), [(True, False)]),
            (lambda m, x: F.conv2d(m.filter(m.expand(x)), m.project.weight, stride=2), [(True, False)]),
            (lambda m, x: F.conv2d(m.filter(m.expand(x)), m.project.weight, padding=1), [(True, False)]),
        ],
        ids=["reads wide", "reads filtered", "between", "residual of wide", "transposed", "stride", "padding"],
    )
    def test_what_others_read(self, function: Callable[..., Any], expected: list[tuple[bool, bool]]) -> None:
        assert parts(fused(With(function))) == expected

    def test_small_images(self) -> None:
        assert not parts(fused(Block(), (1, 16, 14, 14)))
        assert parts(fused(Block(), (16, 16, 14, 14)))

    def test_large_weights(self) -> None:
        assert not parts(fused(Block(c=160, wide=960, oc=160), (4, 160, 14, 14)))

    def test_other_ranks(self) -> None:
        model = nn.Sequential(
            nn.Conv1d(16, 64, 1), nn.Conv1d(64, 64, 3, padding=1, groups=64), nn.Conv1d(64, 16, 1)
        ).eval()
        assert not parts(fused(model, (4, 16, 4000)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_archives_compute_the_same(dtype: torch.dtype, tmp_path: Path, cache_dir: Path) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), Block(16, 96, 24, 3, 2), Block(24, 144, 24, 5), With(_first, c=24, wide=24)
    )
    model = model.eval().to(dtype)
    shapes = {"input": {0: Dim("n", max=4), 2: Dim("high", min=16, max=400), 3: Dim("wide", min=16, max=400)}}
    program = aot_export(model, (torch.randn(2, 3, 160, 200, dtype=dtype),), dynamic_shapes=shapes)
    paths = {}
    for name, without in (("fused", ()), ("apart", ("fuse-depthwise",))):
        paths[name] = tmp_path / f"{name}.aotpack"
        options = BuildOptions(cache_dir=cache_dir, without=without)
        report = build_archive(program, paths[name], options=options)
        done = [each.name for each in report.passes["forward"]["default"]]
        assert ("fuse-depthwise" in done) == (name == "fused")
    models = {name: aotpack.load(path) for name, path in paths.items()}
    for shape in [(2, 3, 160, 200), (1, 3, 16, 16), (4, 3, 333, 47), (1, 3, 400, 400)]:
        x = torch.randn(shape, dtype=dtype)
        for threads in (1, 2, 5):
            answers = {name: found.context(num_threads=threads)(x) for name, found in models.items()}
            got, expected = (np.asarray(torch.from_dlpack(answers[name]).float()) for name in ("fused", "apart"))
            np.testing.assert_array_equal(got, expected)


def _first(m: With, x: Tensor) -> Tensor:
    filtered: Tensor = m.project(F.hardswish(m.filter(x)))
    return filtered
