"""Products that read blocks through the copy engine: plain launches, graphs, other sizes, operands anywhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("triton")

import torch
from torch.testing import assert_close

from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.backends.cuda import backend
from tests.gpu.large_products import large_products
from tests.support.building import manifest_of
from tests.support.interpreted_gpu.recording import recorded_kernels
from tests.support.torchless import Torchless

pytestmark = pytest.mark.torch


def build(name: str, folder: Path, kernels: Path, cache_dir: Path) -> tuple[torch.nn.Module, Path]:
    torch.manual_seed(0)
    model, args, shapes = large_products()[name]()
    path = folder / f"{name}.aotpack"
    with recorded_kernels(kernels):
        program = aot_export(model, args, dynamic_shapes=shapes)
        build_archive(program, path, targets=["cuda-sm_90"], options=BuildOptions(cache_dir=cache_dir))
    (module,) = manifest_of(path).entries[0].variants[0].modules
    assert "tensor_map" in module.imports
    return model, path


def check_barriers(ptx: str) -> None:
    """One thread of a warp makes each barrier, another one sets it: the warp waits between them."""
    text = iter(re.findall(r"mbarrier\.\w+|bar\.warp\.sync 0xffffffff|bar\.sync", ptx))
    for instruction in text:
        assert instruction != "mbarrier.init" or next(text) == "bar.warp.sync 0xffffffff"


@torch.no_grad()
def test_calls_of_all_sizes(
    gpu: Torchless, kernels: Path, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes at the ends of blocks, none, and the same ones again: as graphs, with other inputs."""
    modules = []
    lower = backend.lower
    monkeypatch.setattr(backend, "lower", lambda *args, **how: modules.append(lower(*args, **how)) or modules[-1])
    model, path = build("large-products", tmp_path, kernels, cache_dir)
    texts = [kernel.ptx for kernel in modules[0].device_code]
    assert any("mbarrier.init" in text for text in texts)
    for text in texts:
        check_barriers(text)
    context = gpu.load(path, device="cuda:0").context()
    for rows in (1, 0, 130, 130, 130, 1):
        x = torch.randn(rows, 256).half()
        before = gpu.ask("driver_calls", "cuGraphLaunch")
        launched = gpu.ask("driver_calls", "cuLaunchKernelEx")
        for found, wanted in zip(context(x), model(x), strict=True):
            assert_close(found, wanted, rtol=0, atol=5e-3 * max(1.0, float(wanted.abs().max())) if rows else 0)
        graphs = gpu.ask("driver_calls", "cuGraphLaunch") - before
        # As plain launches or in a graph, kernels are started early.
        plain = gpu.ask("driver_calls", "cuLaunchKernelEx") - launched
        assert (plain > 0) != (graphs == 1) or rows == 0
    assert graphs == 1
    assert gpu.ask("driver_calls", "cuGraphAddDependencies_v2") > 0


@torch.no_grad()
def test_operands_that_are_not_aligned(gpu: Torchless, kernels: Path, tmp_path: Path, cache_dir: Path) -> None:
    model, path = build("large-products-parts", tmp_path, kernels, cache_dir)
    context = gpu.load(path, device="cuda:0").context()
    for _ in range(3):
        x = torch.randn(512, 272).half()
        for found, wanted in zip(context(x), model(x), strict=True):
            assert_close(found, wanted, rtol=0, atol=5e-3 * float(wanted.abs().max()))
