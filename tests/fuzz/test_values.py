"""Random programs over many operators compute what eager computes, whatever numbers they are given.

A round builds one archive of several programs and calls it with plain numbers, numbers of all sizes, and infinities,
NaN and subnormals. A program that fails is printed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.fuzz.programs import Program, check, draw_values, program
from tests.fuzz.rounds import rounds

pytestmark = pytest.mark.torch

_PROGRAMS, _STEPS = 6, 5


class Together(torch.nn.Module):
    """All programs, one after the other: one archive costs one build."""

    def __init__(self, programs: Sequence[Program]) -> None:
        super().__init__()
        self._programs = torch.nn.ModuleList(programs)

    def forward(self, inputs: list[list[torch.Tensor]]) -> list[tuple[torch.Tensor, ...]]:
        return [made(*given) for made, given in zip(self._programs, inputs, strict=True)]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_values(tmp_path: Path, cache_dir: Path) -> None:
    for generator in rounds("values", 1):
        programs = [program(generator, _STEPS) for _ in range(_PROGRAMS)]
        archive = _built(programs, generator, tmp_path / "x.aotpack", cache_dir)
        for kind in ("plain", "sizes", "special"):
            inputs = [draw_values(generator, made, kind) for made in programs]
            results: Any = archive(inputs)
            for made, given, actual in zip(programs, inputs, results, strict=True):
                try:
                    check(made, given, actual)
                except AssertionError as error:
                    raise AssertionError(f"{error}\n{kind} values of\n{made.text()}") from None


def _built(programs: Sequence[Program], generator: random.Random, path: Path, cache: Path) -> aotpack.Model:
    inputs = [draw_values(generator, made, "plain") for made in programs]
    try:
        # Goldens allow for no rounding that a program makes more of; this test does.
        build_archive(
            aot_export(Together(programs), (inputs,)), path, options=BuildOptions(cache_dir=cache, check=False)
        )
    except Exception:
        print("\n\n".join(made.text() for made in programs))
        raise
    return aotpack.load(path, num_threads=1)
