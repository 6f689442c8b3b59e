"""The file that says which algorithms a build measured."""

from __future__ import annotations

import json

import pytest

from aotpack.archive.algorithms import MeasuredAlgorithms, decode_algorithms, encode_algorithms
from aotpack.errors import MalformedArchiveError

ONE = MeasuredAlgorithms(
    "conv", (1, 64), "x86-64-v4", "vendor-1-2-3", 2, {"direct": 200, "winograd_2x2": 100}, ("winograd_2x2",)
)
TWO = MeasuredAlgorithms("block", (6, 1), "x86-64-v3", "vendor-1-2-3", 1, {"fused": 30, "parts": 30}, ())


def test_round_trip() -> None:
    data = encode_algorithms([ONE, TWO])
    assert decode_algorithms(data) == (TWO, ONE)
    assert encode_algorithms([TWO, ONE]) == data


@pytest.mark.parametrize(
    "change",
    [
        {"operator": ""},
        {"target": 3},
        {"numbers": [-1]},
        {"numbers": [1.5]},
        {"threads": True},
        {"nanoseconds": {}},
        {"nanoseconds": [1]},
        {"nanoseconds": {"direct": "1"}},
        {"chosen": ["another"]},
        {"chosen": 7},
    ],
)
def test_malformed(change: dict[str, object]) -> None:
    value = json.loads(encode_algorithms([ONE]))
    value["algorithms"][0].update(change)
    with pytest.raises(MalformedArchiveError, match=r"tuning/algorithms\.json"):
        decode_algorithms(json.dumps(value).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"algorithms": 1}', b'{"algorithms": [1]}', b"[" * 100000])
def test_not_the_file(data: bytes) -> None:
    with pytest.raises(MalformedArchiveError):
        decode_algorithms(data)
