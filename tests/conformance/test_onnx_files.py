"""The harness of ONNX files: a file that is made here, by the command line and without torch, and what it rejects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.onnx_files.cases import CASES, find
from tests.conformance.onnx_files.outcome import judge, run_case
from tests.conformance.task import OK, WRONG

pytestmark = pytest.mark.torch


def test_a_pipeline_agrees_with_onnxruntime(tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    outcome = run_case(find("scikit/logistic"), wheels=tmp_path, work=tmp_path, cache=None)
    assert outcome.kind == OK, outcome.text
    assert [call["shapes"] for call in outcome.calls] == [[[16, 6]], [[5, 6]]]


def test_differences_are_wrong() -> None:
    calls = [{"error": 0.0, "problem": ""}, {"error": 2e-4, "problem": ""}]
    assert judge("case", {"signature": "", "calls": calls}, 0, 0).kind == WRONG
    calls[1]["noise"] = 3e-4
    noisy = judge("case", {"signature": "", "calls": calls}, 0, 0)
    assert noisy.kind == OK
    assert "move by 3e-04" in noisy.text


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
