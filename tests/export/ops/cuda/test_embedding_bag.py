"""The kernel of embedding bags against torch."""

from __future__ import annotations

import pytest

from tests.export.ops.cuda.interpreter import Interpreter

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


def test_the_kernel_computes_bags(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_embedding_bag")
