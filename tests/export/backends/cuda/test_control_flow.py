"""Branches and loops of modules for GPUs answer as eager does, on every path (tests/support/interpreted_gpu)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from aotpack.export import BuildOptions, BuildReport, aot_export, build_archive
from aotpack.export.torch_compat.higher_order import functions_called
from tests.gpu.control_flow import calls, control_flow
from tests.support.building import assert_close
from tests.support.interpreted_gpu.recording import recorded_kernels
from tests.support.torchless import RemoteModel, Torchless

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

NAMES = ("flow-branches", "flow-loops", "flow-scans", "flow-items")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, kernels: Path, cache_dir: Path) -> dict[str, BuildReport]:
    folder, found = tmp_path_factory.mktemp("archives"), {}
    with recorded_kernels(kernels):
        for name in NAMES:
            torch.manual_seed(0)
            model, args, shapes = control_flow()[name]()
            program = aot_export(model, args, dynamic_shapes=shapes)
            # Their branches read the weights of one of the archives that can be updated.
            options = BuildOptions(cache_dir=cache_dir, updatable=name == "flow-loops")
            path = folder / f"{name}.aotpack"
            found[name] = build_archive(program, path, targets=["cuda-sm_90"], options=options)
    return found


@pytest.fixture(autouse=True)
def _as_python() -> Iterator[None]:
    """Eager calls the functions: Dynamo would take longer than everything else here."""
    with torch.no_grad(), functions_called():
        yield


def check(found: Any, wanted: Any) -> None:
    for value, expected in zip(tree_leaves(found), tree_leaves(wanted), strict=True):
        assert value.shape == expected.shape
        assert_close(value, expected)


class Waits:
    """How often a call waits for the device, at its end too, and whether it was a graph."""

    def __init__(self, gpu: Torchless) -> None:
        self._gpu, self._before = gpu, self._now(gpu)

    @staticmethod
    def _now(gpu: Torchless) -> list[int]:
        return [gpu.ask("driver_calls", name) for name in ("cuStreamSynchronize", "cuGraphLaunch")]

    def counted(self, results: int) -> tuple[int, int]:
        """Since the object was made; the process has read as many results."""
        waits, graphs = (now - before for now, before in zip(self._now(self._gpu), self._before, strict=True))
        return waits - 2 * results, graphs


def load(gpu: Torchless, reports: dict[str, BuildReport], name: str) -> tuple[Any, RemoteModel]:
    torch.manual_seed(0)
    return control_flow()[name]()[0], gpu.load(reports[name].path, device="cuda:0")


def test_branches(gpu: Torchless, reports: dict[str, BuildReport]) -> None:
    """In branches, by sizes, with state; operators without a GPU kernel run on the host, in branches, too."""
    steps = reports["flow-branches"].host_steps["forward"]["default"]
    assert [step.operator for step in steps] == ["aten.digamma"]
    assert all("in forward" in step.line for step in steps)
    model, archive = load(gpu, reports, "flow-branches")
    context = archive.context()
    for call in calls("flow-branches"):
        check(context(*call), model(*call))


def test_loops(gpu: Torchless, reports: dict[str, BuildReport]) -> None:
    model, archive = load(gpu, reports, "flow-loops")
    for x, count in calls("flow-loops"):
        waits = Waits(gpu)
        check(archive(x, count), model(x, count))
        # The loop over rows, the branch and the loop inside do not.
        assert waits.counted(results=4) == (int(count) + 2, 0)
    other, _, _ = control_flow()["flow-loops"]()
    archive.method("update_weights", other.state_dict())
    x, count = torch.randn(2, 8), torch.tensor(3)
    check(archive(x, count), other(x, count))


def test_scans_and_maps_are_graphs(gpu: Torchless, reports: dict[str, BuildReport]) -> None:
    model, archive = load(gpu, reports, "flow-scans")
    context = archive.context()
    for call in calls("flow-scans"):
        for is_graph in (0, 1, 1):
            waits = Waits(gpu)
            check(context(*call), model(*call))
            assert waits.counted(results=5) == (1, is_graph)


def test_numbers_of_the_device_and_of_the_caller(gpu: Torchless, reports: dict[str, BuildReport]) -> None:
    model, archive = load(gpu, reports, "flow-items")
    for call in calls("flow-items"):
        check(archive(*call), model(*call))
