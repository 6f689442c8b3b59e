"""The common template of the seed document 004: operator programs, all dims dynamic, through archives without torch.

Each program is called with the sizes of its example, with 1, with larger ones, and with 0 where eager takes that; its
results are compared with eager in double precision. What torch.export itself cannot capture for all sizes is refused
with an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpack.errors import CaptureError
from aotpack.export import aot_export
from tests.seeds.dynamic_programs_indexing import INDEXING, SORT_AND_SCAN
from tests.seeds.dynamic_programs_pointwise import DTYPES, POINTWISE
from tests.seeds.dynamic_programs_products import ATTENTION, CONVOLUTIONS, MATMUL
from tests.seeds.dynamic_programs_reductions import LOSSES, NORMALISATIONS, REDUCTIONS
from tests.seeds.dynamic_programs_shapes import FACTORIES, SHAPES
from tests.seeds.dynamic_template import Bundle, OperatorProgram, bundles
from tests.support.torchless import RemoteModel

Build = Callable[..., RemoteModel]

FAMILIES: dict[str, tuple[OperatorProgram, ...]] = {
    "pointwise": POINTWISE,
    "dtypes": DTYPES,
    "reductions": REDUCTIONS,
    "normalisations": NORMALISATIONS,
    "losses": LOSSES,
    "shapes": SHAPES,
    "factories": FACTORIES,
    "indexing": INDEXING,
    "sort_and_scan": SORT_AND_SCAN,
    "matmul": MATMUL,
    "convolutions": CONVOLUTIONS,
    "attention": ATTENTION,
}
PROGRAMS = [program for family in FAMILIES.values() for program in family]
REFUSED = [program for program in PROGRAMS if program.refused is not None]
BUNDLES = {
    f"{name}_{i}": bundle
    for name, family in FAMILIES.items()
    for i, bundle in enumerate(bundles([program for program in family if program.refused is None]))
}


@pytest.mark.parametrize("bundle", BUNDLES.values(), ids=BUNDLES.keys())
def test_programs(bundle: Bundle, build: Build) -> None:
    torch.manual_seed(0)
    archive = build(bundle, (bundle.example(),), dynamic_shapes=bundle.dynamic_shapes(), goldens=False)
    for calls in bundle.rounds():
        answers: dict[str, Any] = archive(calls)
        for program, inputs in zip(bundle.programs, calls, strict=True):
            program.compare(answers[program.name], inputs)


@pytest.mark.parametrize("program", REFUSED, ids=lambda program: program.name)
def test_refusals(program: OperatorProgram) -> None:
    bundle = Bundle([program])
    with pytest.raises(CaptureError, match=program.refused):
        aot_export(bundle, (bundle.example(),), dynamic_shapes=bundle.dynamic_shapes())


def test_the_template_is_wide() -> None:
    names = [program.name for program in PROGRAMS]
    assert len(names) == len(set(names))
    assert len(names) - len(REFUSED) >= 150
    for program in PROGRAMS:
        sizes = list(program.calls())
        assert len({tuple(one.items()) for one in sizes}) >= 3, program.name
        assert all(program.dims()), program.name
