"""The kernels of linear layers with int8 weights against torch."""

from __future__ import annotations

import pytest

from tests.export.ops.cuda.interpreter import Interpreter

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


def test_the_kernels_compute_linear_layers(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_int8_weight")
