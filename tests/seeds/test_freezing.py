"""Freezing, scenario by scenario: archives whose weights were folded and packed, run without torch, against eager."""

from __future__ import annotations

import copy
import gc
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack.archive import ArchiveReader
from aotpack.errors import SourceFreedError
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.seeds.freezing import TOLERANCE, Build, ConvBn
from tests.support.building import assert_close, check, manifest_of

pytestmark = pytest.mark.torch


# ---- state ----------------------------------------------------------------------------------------------------------


def test_mutation(build: Build) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = nn.Parameter(torch.zeros(10, 10), requires_grad=False)

        def forward(self) -> Tensor:
            self.total.add_(10)
            return self.total

    model = build(Counter(), ())
    assert [(c.name, c.mutated) for c in manifest_of(model.path).constants] == [("total", True)]
    first, second = model.context(), model.context()
    for step in (10, 20):
        assert torch.equal(first(), torch.full((10, 10), float(step)))
    assert torch.equal(second(), torch.full((10, 10), 10.0)), "contexts share state"


def test_aliased_param_return(built: Callable[..., Path]) -> None:
    class Aliases(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(10, 10))

        def forward(self) -> tuple[Tensor, Tensor, Tensor]:
            return self.weight[1:], self.weight, self.weight

    eager = Aliases().eval()
    path = built(eager, ())
    eager.weight.detach().numpy().tofile(path.with_suffix(".bin"))
    script = """
import sys, aotpack, numpy
model = aotpack.load(sys.argv[1])
weight = numpy.fromfile(sys.argv[2], numpy.float32).reshape(10, 10)
for _ in range(2):
    results = [numpy.asarray(value) for value in model()]
    for value, wanted in zip(results, (weight[1:], weight, weight)):
        assert (value == wanted).all()
    for value in results:
        value[...] = 7  # a result is the caller's to write to
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, str(path), str(path.with_suffix(".bin"))], check=True)


def test_rng_op(build: Build) -> None:
    model = build(lambda: torch.rand(4, 4) + 1, ())
    context = model.context()
    assert not torch.equal(context(), context())
    seeded = model.context(seed=7)
    results = [seeded(), seeded()]
    seeded.method("seed", 7)
    assert [seeded().tolist(), seeded().tolist()] == [value.tolist() for value in results]
    assert all(bool(((value >= 1) & (value < 2)).all()) for value in results)


# ---- constants ------------------------------------------------------------------------------------------------------


class InnerAutocast(nn.Module):
    """A linear under autocast of its own."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 10)
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            return self.linear(x)


@pytest.mark.parametrize("where", ["around", "inside"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(built: Callable[..., Path], torchless: Any, tmp_path: Path, dtype: torch.dtype, where: str) -> None:
    eager = InnerAutocast(dtype).eval() if where == "inside" else nn.Linear(10, 10).eval()
    x = torch.rand(10, 10).to(dtype)
    if where == "inside":
        path = built(eager, (x,))
    else:
        with torch.autocast("cpu", dtype=dtype):
            path = built(eager, (x,))
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        wanted = eager(x)
    result = torchless.load(path)(x)
    assert result.dtype == dtype
    assert_close(result, wanted.double(), TOLERANCE[dtype])
    with ArchiveReader(path) as reader:
        kernels = [k.name for k in reader.manifest.entries[0].variants[0].modules[0].kernels]
        dtypes = {str(constant.dtype) for constant in reader.manifest.constants}
    assert kernels == ["packed_linear"], "a cast of a weight is left for run time"
    assert dtypes == {str(dtype).removeprefix("torch.")}


def test_symint_not_folded(build: Build) -> None:
    class Sizes(nn.Module):
        def forward(self, a: Tensor) -> tuple[Tensor, Tensor]:
            return a.cos(), torch.zeros(a.shape[0], a.shape[1]) + a.shape[0]

    shapes = {"a": {0: torch.export.Dim("m", min=1, max=8), 1: torch.export.Dim("n", min=1, max=8)}}
    model = build(Sizes(), (torch.randn(2, 4, 6),), dynamic_shapes=shapes)
    check(model, Sizes(), (torch.randn(2, 4, 6),), (torch.randn(3, 5, 6),), (torch.randn(1, 8, 6),))


# ---- the source model -----------------------------------------------------------------------------------------------


def test_error_on_eager(build: Build) -> None:
    eager, args = ConvBn(3, 32, kernel_size=3, stride=2).eval(), (torch.rand(3, 3, 32, 32),)
    before = copy.deepcopy(eager)
    model = build(eager, args, free_source=True)
    check(model, before, args)
    with pytest.raises(SourceFreedError, match="freed when its archive was built") as caught:
        eager(*args)
    assert isinstance(caught.value, RuntimeError)
    assert "free_source" in str(caught.value.hint)
    with pytest.raises(SourceFreedError):
        eager.conv(*args)


class Shifted(nn.Module):
    """A parameter that is needed only to make another constant of it."""

    def __init__(self, size: int = 10) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight + 10) + x


def test_param_deallocated(tmp_path: Path, cache_dir: Path, torchless: Any) -> None:
    eager = Shifted().eval()
    x = torch.rand(10)
    wanted = eager(x)
    memory = weakref.ref(eager.weight.untyped_storage())
    program = aot_export(eager, (x,))
    path = tmp_path / "shifted.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, free_source=True))
    gc.collect()
    assert memory() is None or eager.weight.untyped_storage().nbytes() == 0
    with ArchiveReader(path) as reader:
        assert [(c.role, c.sources) for c in reader.manifest.constants] == [("folded", ("weight",))]
    assert_close(torchless.load(path)(x), wanted.double(), 1e-6)


def test_param_deallocated_bounds_the_memory_of_a_build(tmp_path: Path, cache_dir: Path) -> None:
    """Sixteen layers of 16 MB: freed one after another, or never in memory at all."""
    script = """
import ctypes, gc, json, sys, torch
from pathlib import Path
from torch import nn
from safetensors.torch import save_model
from aotpack.export import BuildOptions, aot_export, build_archive, without_weights

kind, folder, cache = sys.argv[1:]
WIDTH, LAYERS = 2048, 16

def used(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024

def make():
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))).eval()

def build(layers, output, **options):
    # What code generation takes in any case is taken before memory is measured.
    return build_archive(layers, output, options=BuildOptions(cache_dir=cache, goldens=False, **options))

x = torch.randn(1, WIDTH)
build(aot_export(nn.Sequential(nn.Linear(64, 64)).eval(), (torch.randn(1, 64),)), f"{folder}/first.aotpack")
if kind == "streamed":
    weights = f"{folder}/weights.safetensors"
    with without_weights():
        program = aot_export(make(), (x,), weights=weights)
    options = {}
else:
    model = make()
    program = aot_export(model, (x,))
    options = {"free_source": True}
before = used("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
build(program, f"{folder}/{kind}.aotpack", **options)
# What is freed, not when: Python frees cycles, and glibc gives memory back, when they see fit.
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
print(json.dumps({"before": before, "peak": used("VmHWM"), "after": used("VmRSS")}))
"""
    from safetensors.torch import save_model

    width, layers = 2048, 16
    total = width * width * 4 * layers
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    save_model(model, str(tmp_path / "weights.safetensors"))
    del model
    figures = {}
    for kind in ("streamed", "freed"):
        command = [sys.executable, "-c", script, kind, str(tmp_path), str(cache_dir)]
        # glibc raises this limit with every large block that is freed; memory below it may stay with the process.
        environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
        result = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        figures[kind] = json.loads(result.stdout.splitlines()[-1])
    # Without the weights' own size: what packing them adds. Streamed, a few of them at a time; freed, less and less.
    assert figures["streamed"]["peak"] - figures["streamed"]["before"] < 0.5 * total, figures
    assert figures["freed"]["peak"] - figures["freed"]["before"] < 0.3 * total, figures
    assert figures["freed"]["after"] < figures["freed"]["before"] - 0.7 * total, figures
