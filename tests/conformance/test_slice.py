"""A part of the operator database, the same in every run: operators of all kinds in all dtypes.

`AOTPACK_SLICE=n` chooses another part. Wrong results and crashes fail, and so does what docs/operators.json has as
passing and does not pass.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.conformance.opinfo import DTYPES, Results, matching, recorded, run, sliced
from tests.conformance.task import CRASH, FORWARD, WRONG

# So many parts are there, and so many cases of an operator and dtype are run: half a minute on two cores.
_PARTS = 96
_CASES = 6


@pytest.mark.torch
@pytest.mark.slow
def test_slice(cache_dir: Path) -> None:
    known = recorded().get(FORWARD, {})
    part = int(os.environ.get("AOTPACK_SLICE", "0"))
    chosen = sliced(matching(re.compile(""), DTYPES, FORWARD), part, _PARTS)
    records = run(chosen, _CASES, FORWARD, Results(None), cache=cache_dir)
    assert len(records) == len(chosen)
    problems = []
    for record in records:
        regressed = known.get(record.dtype, {}).get(record.op) == "passes" and record.verdict != "passes"
        if regressed or record.endings.get(WRONG) or record.endings.get(CRASH):
            problems.append(f"{record.op} {record.dtype}: {record.verdict} {record.reasons}")
    assert not problems, "\n".join(problems)
