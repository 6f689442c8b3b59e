from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def as_shipped() -> Iterator[None]:
    """Operators and architectures are tested as users build them; other tests build faster (`make test-py`)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AOTPACK_OPT_LEVEL", raising=False)
        yield
