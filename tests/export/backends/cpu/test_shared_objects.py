"""Models that differ in what a source does not read share its object in the cache."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from aotpack.building import native_sources
from aotpack.export.backends.cpu import toolchain
from aotpack.targets import Target

HALVES = [frozenset(some) for count in range(3) for some in combinations(["bf16", "f16"], count)]
SOURCES = native_sources.sources_for(native_sources.operator_groups())


def macros(source: Path, halves: frozenset[str]) -> set[str]:
    flags = toolchain.library_flags(Target.parse("native").name, halves=halves, source=source)
    return {flag for flag in flags if flag.startswith("-DAOTPACK_")}


def source(name: str) -> Path:
    return native_sources.source_root() / name


def test_kernels_are_the_same_with_and_without_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [path for path in SOURCES if path.is_relative_to(source("kernels"))]
    assert len(kernels) > 10
    for path in kernels:
        for halves in HALVES:
            monkeypatch.delenv("AOTPACK_TRACE", raising=False)
            without = macros(path, halves)
            monkeypatch.setenv("AOTPACK_TRACE", "1")
            assert macros(path, halves) == without, path


@pytest.mark.parametrize("name", ["module/ops/linear.cpp", "module/ops/layout.cpp", "module/ops/conv.cpp"])
def test_operators_that_note_their_calls_follow_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTPACK_TRACE", "1")
    assert "-DAOTPACK_TRACE" in macros(source(name), frozenset())


@pytest.mark.parametrize("name", ["scan", "sort", "index", "scatter", "linalg_svd", "resample"])
def test_operators_of_any_dtype_are_the_same_for_all_halves(name: str) -> None:
    assert not any(macros(source(f"module/ops/{name}.cpp"), halves) for halves in HALVES)


@pytest.mark.parametrize(
    "name", ["fft", "conv", "conv_winograd", "gemm_int8", "linear", "pack_weight", "transpose_copy"]
)
def test_kernels_of_no_element_type_are_the_same_for_all_halves(name: str) -> None:
    """The largest of them takes as long to compile as all others of a model."""
    assert not any(macros(source(f"kernels/{name}.cpp"), halves) for halves in HALVES)


@pytest.mark.parametrize("name", ["kernels/gemm.cpp", "kernels/attention.cpp", "module/ops/linear.cpp"])
def test_code_for_halves_follows_them(name: str) -> None:
    for halves in HALVES:
        left_out = {f"-DAOTPACK_WITHOUT_{half.upper()}" for half in {"bf16", "f16"} - halves}
        assert macros(source(name), halves) == left_out
