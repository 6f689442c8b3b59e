"""Operators without a kernel for GPUs run on the host, inside of the module.

With the driver without a GPU (tests/support/fake_cuda), whose memory the host cannot address: it runs no Triton
kernels, so that these models consist of host steps alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import aotpack
from aotpack.building.operator_declarations import functions
from aotpack.errors import ExecutionError, UnsupportedOperatorError
from aotpack.export import BuildOptions, BuildReport, aot_export, build_archive
from aotpack.export.backends.cuda.host_steps import definitions, host_functions
from tests.export.backends.cuda.cubins import check_module, module_of
from tests.gpu.host_steps import host_steps as host_step_models

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

TARGET = "cuda-sm_90"
MASK = torch.tensor([True, False, True, True])


@pytest.fixture(scope="module")
def driver(fake_driver: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTPACK_LIBCUDA", str(fake_driver))
        patch.setenv("FAKE_CUDA_DEVICES", "9.0,9.0")
        yield


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


Build = Callable[..., BuildReport]


@pytest.fixture
def build(tmp_path: Path, cache_dir: Path) -> Build:
    def make(model: Any, args: Sequence[Any], targets: Sequence[str] = (TARGET,), **how: Any) -> BuildReport:
        options = BuildOptions(cache_dir=cache_dir, host_steps=how.pop("host_steps", True))
        program = aot_export(model, tuple(args), **how)
        return build_archive(program, tmp_path / "m.aotpack", targets=list(targets), options=options)

    return make


def grid(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return F.grid_sample(x, places, align_corners=False)


# Compared by values; results of linear algebra are unique for these.
MODELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sort": (lambda x: x.sort(-1), (torch.randperm(15000).float().view(3, 5000),)),
    "sort of columns": (lambda x: x.sort(0), (torch.randperm(15000).float().view(3, 5000).mT,)),
    "topk": (lambda x: x.topk(5), (torch.randperm(6000).float().view(3, 2000),)),
    "nonzero": (lambda x: x.nonzero(), (torch.tensor([[0.0, 1, 2], [3, 0, 0]]),)),
    "masked_select": (torch.masked_select, (torch.rand(3, 4), MASK)),
    "rows of a mask": (lambda x, m: x[m], (torch.rand(4, 3), MASK)),
    "mode": (lambda x: x.mode(-1), (torch.randint(0, 4, (5, 30)),)),
    "singular values": (torch.linalg.svdvals, (torch.rand(4, 6),)),
    "cholesky": (lambda x: torch.linalg.cholesky_ex(x)[0], (torch.eye(5) + 0.1,)),
    "integer product": (torch.mm, (torch.randint(0, 9, (4, 5)), torch.randint(0, 9, (5, 3)))),
    "integer convolution": (
        lambda x, w: F.conv2d(x, w, padding=1),
        (torch.randint(0, 9, (2, 4, 5, 5)), torch.randint(0, 9, (3, 4, 3, 3))),
    ),
    "3-d grid": (grid, (torch.rand(1, 2, 4, 4, 4), torch.rand(1, 3, 3, 3, 3) * 2 - 1)),
    "embedding bag": (
        lambda i, w: torch.ops.aotpack.embedding_bag(w, i, torch.tensor([0, 3]), 0, None, False, -1),
        (torch.randint(0, 20, (7,)), torch.rand(20, 8)),
    ),
}


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_eager(name: str, build: Build) -> None:
    model, args = MODELS[name]
    path = build(model, args).path
    check_module(path, TARGET)
    module, assets, _ = module_of(path, TARGET)
    assert "host_steps" in module.features
    assert not assets, "the driver without a GPU cannot run kernels"
    results = aotpack.load(path, device="cuda:0")(*args)
    expected = model(*args)
    results = [results] if isinstance(results, aotpack.Tensor) else list(results)
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    for found, wanted in zip(results, expected, strict=True):
        assert found.device == "cuda:0"
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_only_functions_without_results_write_to_out() -> None:
    known = functions()
    shims = host_functions(name.replace("aoti_torch_cpu_", "aoti_torch_cuda_", 1) for name in known)
    assert len(shims) > 100
    for shim, function in shims.items():
        named = any(parameter.name == "out" for parameter in function.parameters)
        written = "step.written(out)" in definitions({shim: function})
        assert written == (named and not function.results), shim


@pytest.mark.usefixtures("driver")
def test_sizes_come_from_the_result(build: Build) -> None:
    batch = aotpack.Dim("batch", 1, 64)
    x = torch.randint(0, 2, (8, 5))
    model = aotpack.load(build(lambda x: x.nonzero(), (x,), dynamic_shapes={"x": {0: batch}}).path, device="cuda:0")
    for given in (x, torch.zeros(1, 5, dtype=torch.int64), torch.randint(0, 2, (64, 5))):
        np.testing.assert_array_equal(model(given).numpy(), given.nonzero().numpy())


@pytest.mark.usefixtures("driver")
def test_state_that_a_host_step_writes_to(build: Build) -> None:
    class Histogram(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(4, 3))

        def forward(self, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            torch.ops.aten.index_put_(self.rows, [m], v)
            return v.nonzero()

    model, v = Histogram(), torch.rand(3, 3)
    context = aotpack.load(build(model, (MASK, v)).path, device="cuda:0").context()
    context(MASK, v)
    model(MASK, v)
    np.testing.assert_array_equal(context.state()["rows"].numpy(), model.rows.numpy())


@pytest.mark.usefixtures("driver")
def test_a_host_step_that_fails_is_the_error_of_the_call(build: Build) -> None:
    x = torch.eye(3)
    path = build(lambda x: torch.linalg.cholesky_ex(x, check_errors=True)[0], (x,)).path
    model = aotpack.load(path, device="cuda:0")
    with pytest.raises(ExecutionError, match="not positive-definite"):
        model(-x)
    np.testing.assert_array_equal(model(x).numpy(), x.numpy())


def top(x: torch.Tensor) -> torch.Tensor:
    return x.topk(5)[0]


def test_a_build_reports_what_runs_on_the_host(build: Build) -> None:
    report = build(top, (torch.rand(3, 2000),))
    (step,) = report.host_steps["forward"]["default"]
    assert step.operator == "aten.topk"
    assert step.nbytes == 3 * 2000 * 4 + 3 * 5 * (4 + 8)
    assert "x.topk(5)" in step.line
    assert report.to_dict()["host_steps"]["forward"]["default"][0]["operator"] == "aten.topk"
    assert report.passes["forward"]["default"][-1].name == "host-steps"
    dynamic = {"x": {1: aotpack.Dim("n", 1500, 3000)}}
    (step,) = build(top, (torch.rand(3, 2000),), dynamic_shapes=dynamic).host_steps["forward"]["default"]
    assert step.nbytes is None


def test_a_build_without_host_steps_names_them(build: Build) -> None:
    with pytest.raises(
        UnsupportedOperatorError, match=r"not supported on GPUs:\n  - aten.topk\n.*x\.topk\(5\)"
    ) as caught:
        build(top, (torch.rand(3, 2000),), host_steps=False)
    assert caught.value.operators == ("aten.topk",)
    assert not build(lambda x: x + 1, (torch.rand(3),), host_steps=False).host_steps


def test_a_cpu_target_beside_has_no_host_steps(build: Build) -> None:
    path = build(top, (torch.rand(3, 2000),), targets=("x86-64-v3", TARGET)).path
    assert module_of(path, "x86-64-v3")[0].features == ()
    assert module_of(path, TARGET)[0].features == ("async", "host_steps")


@pytest.mark.parametrize("name", ["host-rows", "host-masks", "host-complex"])
def test_kernels_and_host_steps_in_one_module(name: str, build: Build) -> None:
    model, args, shapes = host_step_models()[name]()
    check_module(build(model, args, dynamic_shapes=shapes).path, TARGET)


@pytest.mark.parametrize("sizes", [(0, 0, 3), (2, 0, 3), (0, 4, 3)])
def test_products_without_elements(sizes: tuple[int, int, int], build: Build) -> None:
    m, k, n = sizes
    assert not build(torch.mm, (torch.rand(m, k), torch.rand(k, n))).host_steps
