"""Every operator on tensors of odd layouts and sizes, under AddressSanitizer and UndefinedBehaviorSanitizer.

Each C function that a module may call gets tensors that are permuted, full of holes, repeated (stride 0), flipped, not
aligned, of size 0 and 1, with any stride where the size is 1, in blocks without a byte to spare.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aotpack.building.cache import BuildCache
from tests.odd_inputs import (
    cases_elements,
    cases_int8,
    cases_linalg,
    cases_products,
    cases_quantized,
    cases_random,
    cases_scores,
    cases_spectra,
    cases_vision,
)
from tests.odd_inputs.declarations import functions
from tests.odd_inputs.harness import Case, build, check, prepare, run

pytestmark = pytest.mark.torch

TOPICS: dict[str, Callable[[], Iterator[Case]]] = {
    "elements": cases_elements.cases,
    "int8": cases_int8.cases,
    "quantized": cases_quantized.cases,
    "linalg": cases_linalg.cases,
    "products": cases_products.cases,
    "random": cases_random.cases,
    "scores": cases_scores.cases,
    "spectra": cases_spectra.cases,
    "vision": cases_vision.cases,
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    return build(tmp_path_factory.mktemp("odd"), BuildCache(cache_dir), sorted(covered()), cases_scores.TEXTS)


def covered() -> set[str]:
    """The functions that have cases."""
    return {case.function for cases in TOPICS.values() for case in cases()}


@pytest.mark.parametrize("topic", TOPICS)
def test_odd_inputs(library: Path, tmp_path: Path, topic: str) -> None:
    generator = random.Random(topic)
    torch_seed(topic)
    prepared = [item for case in TOPICS[topic]() for item in prepare(case, generator)]
    threads = [1, 2]
    calls = [
        (item.label, item.case.function, item.values, item.function.results, threads[i % 2])
        for i, item in enumerate(prepared)
    ]
    answers = run(library, tmp_path, calls)
    wrong = []
    for item, answer in zip(prepared, answers, strict=True):
        try:
            check(item, answer)
        except AssertionError as error:
            wrong.append(str(error))
    shown = "\n".join(wrong[:12])
    assert not wrong, f"{len(wrong)} of {len(prepared)} calls are wrong:\n{shown}"


def torch_seed(topic: str) -> None:
    import torch

    torch.manual_seed(sum(map(ord, topic)))


def test_every_operator_has_cases() -> None:
    without = set(functions()) - covered()
    assert not without, f"without cases: {sorted(without)}"
