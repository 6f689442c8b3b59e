"""Building archives in tests: one build cache for the whole run, and comparison with eager in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("build-cache")


Build = Callable[..., aotpack.Model]


@pytest.fixture
def build(tmp_path: Path, cache_dir: Path) -> Build:
    """Captures, builds and loads a model; `build.path` of the result is `model.path`."""

    def run(
        model: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None = None,
        *,
        dynamic_shapes: Any = None,
        targets: Sequence[str] | None = None,
        verify: str = "full",
    ) -> aotpack.Model:
        program = aot_export(model, tuple(args), kwargs, dynamic_shapes=dynamic_shapes)
        output = tmp_path / f"{len(list(tmp_path.iterdir()))}.aotpack"
        build_archive(program, output, targets=targets, options=BuildOptions(cache_dir=cache_dir))
        return aotpack.load(output, verify=verify, num_threads=2)

    return run


def in_double(value: Any) -> Any:
    """The value with floating tensors converted to double."""
    return pytree.tree_map_only(torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, value)


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-4) -> None:
    """Every tensor's greatest error is at most `tolerance` of the greatest expected magnitude; integers are equal."""
    got, wanted = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    assert len(got) == len(wanted)
    for index, (a, e) in enumerate(zip(got, wanted, strict=True)):
        assert tuple(a.shape) == tuple(e.shape), f"output {index}: {tuple(a.shape)} instead of {tuple(e.shape)}"
        if not e.is_floating_point():
            assert torch.equal(a, e), f"output {index} differs"
            continue
        if e.numel() == 0:
            continue
        assert torch.equal(a.isnan(), e.isnan()), f"output {index}: NaN at other places"
        scale = e.nan_to_num().abs().max().clamp_min(1e-30)
        error = ((a.double() - e.double()).nan_to_num().abs().max() / scale).item()
        assert error <= tolerance, f"output {index}: relative error {error:.3g} > {tolerance}"


def check(model: aotpack.Model, eager: torch.nn.Module, *calls: tuple[Any, ...], tolerance: float = 1e-4) -> None:
    """Compares the archive with eager in double precision on every call, twice, so that stale buffers show."""
    import copy

    reference = copy.deepcopy(eager).double()
    for args in calls:
        with torch.no_grad():
            expected = reference(*in_double(args))
        for _ in range(2):
            assert_close(model(*args), expected, tolerance)
