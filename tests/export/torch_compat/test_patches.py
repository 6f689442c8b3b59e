"""The table of patches: each entry is checked against the installed torch."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.overrides.table import functions_overridden
from aotpack.export.torch_compat import patches
from tests.support.building import check

INSTALLED = tuple(map(int, torch.__version__.split(".")[:2]))


def in_range(patch: patches.Patch) -> bool:
    first, last = (tuple(map(int, version.split("."))) for version in patch.versions)
    return first <= INSTALLED <= last


# What is applied with the installed torch.
TABLE = {place: patch for place, patch in patches.table().items() if in_range(patch)}


def now(place: str) -> Any:
    """What a caller finds there."""
    owner, name = TABLE[place].owner(), TABLE[place].name
    return owner[name] if isinstance(owner, dict) else getattr(owner, name)


@pytest.mark.parametrize("place", TABLE)
def test_the_place_is_in_the_installed_torch(place: str) -> None:
    patch = TABLE[place]
    assert patch.why
    assert patch.added or patch.exists()
    if patch.parameters is not None and tuple(map(int, patch.versions[1].split("."))) == INSTALLED:
        assert patches.parameters(patch.original()) == patch.parameters


def test_the_installed_torch_was_checked() -> None:
    assert in_range(patches.table()["torch:_check_with"]), f"no patch was checked with torch {torch.__version__}"


@pytest.mark.parametrize("place", TABLE)
def test_it_is_replaced_and_restored(place: str) -> None:
    patch, stand_in = TABLE[place], object()
    before, had = patch.held(), patch.exists()
    with contextlib.suppress(KeyError), patches.applied({place: patches.always(stand_in)}):
        assert now(place) is stand_in
        raise KeyError  # restored after errors, too
    assert patch.held() is before
    assert patch.exists() == had


def test_what_is_not_in_the_table_is_not_replaced() -> None:
    with pytest.raises(KeyError), patches.applied({"math:pi": patches.always(3)}):
        pass
    with pytest.raises(ValueError, match="already"):
        patches.declare(torch.autograd, "_engine_run_backward", "twice")


def test_a_replacement_that_fails_restores_the_others() -> None:
    def fails(original: Any) -> Any:
        raise RuntimeError("no")

    before = math.sqrt
    with (
        pytest.raises(RuntimeError, match="no"),
        patches.applied({"math:sqrt": patches.always(None), "math:cos": fails}),
    ):
        pass
    assert math.sqrt is before


def test_nested_replacements_see_one_another() -> None:
    def negated(original: Callable[[float], float]) -> Callable[[float], float]:
        return lambda x: -original(x)

    with patches.applied({"math:fabs": negated}):
        with patches.applied({"math:fabs": negated}):
            assert math.fabs(2.0) == 2.0
        assert math.fabs(2.0) == -2.0


def test_the_overrides_are_in_the_table() -> None:
    place = "torch.nn.modules.transformer:TransformerEncoder.forward"
    before = TABLE[place].held()
    with functions_overridden():
        assert TABLE[place].held() is not before
    assert TABLE[place].held() is before


def test_one_thread_at_a_time_patches() -> None:
    order: list[str] = []
    entered = threading.Event()

    @patches.exclusive
    def second() -> None:
        order.append("second")

    def other() -> None:
        entered.wait(60)
        second()

    thread = threading.Thread(target=other)
    thread.start()
    with patches.applied({"math:fabs": patches.always(None)}):
        entered.set()
        thread.join(0.2)
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]


class _Scaled(torch.nn.Module):
    """Traced with the functions of `math` replaced."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * math.sqrt(x.shape[0])


class _Loss(torch.nn.Module):
    """Traced with torch.any replaced."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.gaussian_nll_loss(x, x * 0.5, x.abs() + 1)
        return loss + (x > 0).any(1).sum()


def test_two_builds_in_two_threads(tmp_path: Path, cache_dir: Path) -> None:
    begin = threading.Barrier(2, timeout=120)

    def build(model: torch.nn.Module) -> Path:
        begin.wait()
        x = torch.linspace(-1, 2, 12).reshape(3, 4)
        program = aot_export(model, (x,), dynamic_shapes={"x": {0: aotpack.Dim("batch", 1, 64)}})
        path = tmp_path / f"{type(model).__name__}.aotpack"
        build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
        return path

    models = (_Scaled(), _Loss())
    before = {place: TABLE[place].held() for place in TABLE}
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(build, models))
    assert {place: TABLE[place].held() for place in TABLE} == before
    for path, model in zip(paths, models, strict=True):
        archive = aotpack.load(path)
        check(archive, model, *((torch.linspace(-1, 2, batch * 4).reshape(batch, 4),) for batch in (1, 3, 64)))
