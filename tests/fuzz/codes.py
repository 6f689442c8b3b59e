"""Compares random codes in the C++ runtime with Python: `fuzz_code --emit N SEED | python -m tests.fuzz.codes`."""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterable
from typing import Any

from aotpack.archive.code import UndefinedError, evaluate, type_of


def compare(lines: Iterable[str]) -> int:
    """How many codes there were.

    Raises:
        AssertionError: Python refuses a code or computes another value.
    """
    count = 0
    for line in lines:
        sample = json.loads(line)
        code = tuple(_item(item) for item in sample["code"])
        dims: dict[str, int] = sample["dims"]
        type_of(code, dims)
        try:
            expected: Any = evaluate(code, dims)
        except UndefinedError:
            expected = None
        got = sample["value"]
        if isinstance(got, dict):
            got = struct.unpack("<d", struct.pack("<Q", got["bits"]))[0]
        assert _same(got, expected), f"{line.strip()}: Python has {expected!r}"
        count += 1
    return count


def _item(item: Any) -> Any:
    return float(item["float"]) if isinstance(item, dict) else item


def _same(got: Any, expected: Any) -> bool:
    if type(got) is not type(expected):
        return False
    if isinstance(got, float) and math.isnan(got):
        return math.isnan(expected)
    return bool(got == expected)


if __name__ == "__main__":
    total = compare(sys.stdin)
    assert total, "no codes"
    print(f"{total} codes mean the same in C++ and Python")
