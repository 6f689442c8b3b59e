"""Each wrong call of the table gets the error that the table says, and leaves the model as good as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import aotpack
from aotpack import errors
from tests.runtime.wrong_calls import PAGE, evaluate, page
from tests.runtime.wrong_calls_table import TABLE, Section, Wrong

CASES = [(section, wrong) for section in TABLE for wrong in section.calls]


@pytest.mark.parametrize(("section", "wrong"), CASES, ids=[f"{s.recipe}: {w.what}" for s, w in CASES])
def test_exact_error(archive: Callable[[str], Path], section: Section, wrong: Wrong) -> None:
    model = aotpack.load(archive(section.recipe))
    with pytest.raises(errors.AotpackError) as info:
        evaluate(wrong.call, model)
    assert str(info.value) == wrong.message
    assert type(info.value) is getattr(errors, wrong.error)
    evaluate(section.right, model)


def test_every_case_differs() -> None:
    calls = [(section.recipe, wrong.call) for section, wrong in CASES]
    assert len(set(calls)) == len(calls) >= 30


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.runtime.wrong_calls docs/calls.md"
