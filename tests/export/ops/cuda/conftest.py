"""One process with Triton's interpreter for all files here: it takes longer to start than most of its programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.export.ops.cuda.interpreter import Interpreter


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    process = Interpreter()
    yield process
    process.close()
