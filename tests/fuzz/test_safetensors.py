"""Safetensors files of any bytes are read right or refused, in time that is linear in their size."""

from __future__ import annotations

import json
import random
import struct
import time
from pathlib import Path
from typing import Any

from aotpack.archive.safetensors import SafetensorsFile
from aotpack.errors import WeightsFileError
from tests.fuzz.rounds import rounds
from tests.support.files import write_anew

_SIZES = {
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "U16": 2,
    "U64": 8,
    "I64": 8,
    "U8": 1,
    "BOOL": 1,
    "F64": 8,
    "I32": 4,
}
_ODD: list[Any] = [None, True, -1, 0, 1, 2**63, 2**64, 10**30, 0.5, "", "F32", [], [0], {}, "\u0000", "\ud800", [[0]]]


def test_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    refused = accepted = 0
    for generator in rounds("safetensors", 1500):
        data = _file(generator)
        write_anew(path, data)
        begin = time.perf_counter()
        try:
            with SafetensorsFile(path) as file:
                _use(file)
                accepted += 1
        except WeightsFileError:
            refused += 1
        assert time.perf_counter() - begin < 5, f"{len(data)} bytes"
    assert refused > accepted / 10 or refused + accepted < 100
    assert accepted > refused / 50 or refused + accepted < 100


def _use(file: SafetensorsFile) -> None:
    for name in file.names:
        dtype, shape = file.spec(name)
        count = 1
        for size in shape:
            count *= size
        assert file.bytes(name).nbytes == count * _bytes_of(dtype)
        buffer = bytearray(file.bytes(name).nbytes)
        file.read_into(name, buffer)
        assert buffer == file.bytes(name)


def _bytes_of(dtype: Any) -> int:
    return int(dtype.itemsize)


def _file(generator: random.Random) -> bytes:
    header, end = {}, 0
    for i in range(generator.randrange(5)):
        dtype = generator.choice(list(_SIZES))
        shape = [generator.randrange(4) for _ in range(generator.randrange(4))]
        size = _SIZES[dtype]
        for length in shape:
            size *= length
        header[f"t{i}"] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    tree: Any = {"__metadata__": {"a": "b"}, **header} if generator.random() < 0.2 else header
    for _ in range(generator.choice([0, 0, 1, 1, 2, 4])):
        tree = _changed(tree, generator)
    text = json.dumps(tree).encode("utf-8", "surrogatepass") + b" " * generator.choice([0, 0, 3])
    if generator.random() < 0.1:
        # Keys twice.
        text = text[:-1] + b"," + text[1:] if text.startswith(b"{") else text
    data = bytearray(struct.pack("<Q", len(text)) + text + bytes(end))
    if generator.random() < 0.25 and data:
        data[generator.randrange(min(len(data), 8 + len(text)))] = generator.randrange(256)
    if generator.random() < 0.1:
        del data[generator.randrange(len(data)) :]
    if generator.random() < 0.1:
        data += bytes(generator.randrange(20))
    return bytes(data)


def _changed(tree: Any, generator: random.Random) -> Any:
    """A copy with one place changed."""
    if generator.random() < 0.25 or not isinstance(tree, (dict, list)) or not tree:
        return generator.choice(_ODD)
    if isinstance(tree, dict):
        key = generator.choice(list(tree))
        other = {**tree, key: _changed(tree[key], generator)}
        if generator.random() < 0.1:
            del other[key]
        return other
    index = generator.randrange(len(tree))
    return [*tree[:index], _changed(tree[index], generator), *tree[index + 1 :]]
