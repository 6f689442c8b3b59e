"""Calls of the compiler: what is tried where one fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotpack.building.cache import BuildCache
from aotpack.building.compiler import find_compiler
from aotpack.errors import CompileError
from aotpack.export.backends.native import Unit, build_units

_SOURCE = """
#ifndef PLAIN
#error "not so"
#endif
extern "C" __attribute__((visibility("default"))) int f() { return PLAIN; }
"""


def _build(unit: Unit, folder: Path) -> bytes:
    return build_units([unit], find_compiler(), BuildCache(folder), link_flags=["-shared"])


def test_a_failure_is_tried_with_other_flags(tmp_path: Path) -> None:
    unit = Unit("one.cpp", ("-O1", "-fPIC"), "0" * 64, text=_SOURCE, otherwise=("-DPLAIN=3",))
    assert _build(unit, tmp_path)[:4] == b"\x7fELF"


def test_errors_are_those_of_the_last_try(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="not so"):
        _build(Unit("one.cpp", ("-O1", "-fPIC"), "0" * 64, text=_SOURCE), tmp_path)
    with pytest.raises(CompileError, match="not so"):
        _build(Unit("one.cpp", ("-O1", "-fPIC"), "1" * 64, text=_SOURCE, otherwise=("-DOTHER",)), tmp_path)


def test_the_longest_begin_first(tmp_path: Path) -> None:
    def unit(name: str, cost: int) -> Unit:
        text = f'extern "C" __attribute__((visibility("default"))) int {name}() {{ return {cost}; }}'
        return Unit(f"{name}.cpp", ("-O1", "-fPIC"), f"{cost:064}", text=text, cost=cost)

    begun: list[str] = []
    units = [unit("first", 1), unit("second", 3), unit("third", 2)]
    build_units(units, find_compiler(), BuildCache(tmp_path), link_flags=["-shared"], jobs=1, progress=begun.append)
    assert begun == ["second.cpp", "third.cpp", "first.cpp"]
