"""A part of onnx's own backend test suite, in torch; tests/conformance/onnx_backend runs archives of all of it."""

from __future__ import annotations

import pytest

from tests.conformance.onnx_cases import cases
from tests.conformance.onnx_worker import Case

pytestmark = pytest.mark.torch

_PART = 24


def test_cases_of_the_suite() -> None:
    names = [name for name, case in cases().items() if case.is_numeric]
    failed, ran = [], 0
    for name in names[::_PART]:
        try:
            case = Case(cases()[name])
        except Exception as error:
            if "not supported" not in str(error):
                failed.append(f"{name}: {error}")
            continue
        ran += 1
        problem = case.judged(case.found[0])
        # numpy's products in half precision round more often than torch's.
        if problem and "fp16" not in name:
            failed.append(f"{name}: {problem}")
    assert not failed, "\n".join(failed)
    assert ran > len(names) // _PART * 0.8
