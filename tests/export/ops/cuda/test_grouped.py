"""The kernels of grouped products against torch."""

from __future__ import annotations

import pytest

from tests.export.ops.cuda.interpreter import Interpreter

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


def test_the_kernels_compute_grouped_products(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_grouped")
