"""Manifests made to cost time or memory out of proportion to their size; those of the runtime are in test_bombs.cpp."""

from __future__ import annotations

import time

import pytest

from aotpack.archive.node import MAX_BYTES, MAX_VALUES, parse_json
from aotpack.errors import MalformedArchiveError


@pytest.mark.parametrize("over", [0, 1])
def test_the_number_of_values_is_limited(over: int) -> None:
    # The list itself is a value too. Commas and brackets in strings, also behind escapes, are none.
    data = b'["' + b'\\",[{' * 100 + b'"' + b",0" * (MAX_VALUES - 2 + over) + b"]"
    if over:
        with pytest.raises(MalformedArchiveError, match=f"more than {MAX_VALUES} values"):
            parse_json(data)
    else:
        assert len(parse_json(data)) == MAX_VALUES - 1


def test_the_size_is_limited() -> None:
    with pytest.raises(MalformedArchiveError, match=f"at most {MAX_BYTES} are allowed"):
        parse_json(b'"' + b"x" * MAX_BYTES + b'"')


@pytest.mark.parametrize(
    "data",
    [
        b"{" + b",".join(b'"%d":0' % i for i in range(100000)) + b',"99999":0}',
        b'"' + b"\\\\" * 3000000,
        b"[" * 3000000,
    ],
    ids=["keys that differ, but for the last", "a string without an end", "nesting"],
)
def test_work_grows_with_the_size(data: bytes) -> None:
    begin = time.process_time()
    with pytest.raises(MalformedArchiveError):
        parse_json(data)
    assert time.process_time() - begin < 10
