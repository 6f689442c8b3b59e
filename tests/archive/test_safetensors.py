"""The reader of .safetensors: what the reference implementation writes comes back; each broken file has its error."""

from __future__ import annotations

import json
import os
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

import aotpack.archive.safetensors as safetensors_module
from aotpack.archive.safetensors import MAX_HEADER, SafetensorsFile, open_safetensors
from aotpack.errors import WeightsFileError, WeightsNotFoundError
from aotpack.spec import DType

DTYPES = {
    DType.FLOAT64: np.float64,
    DType.FLOAT32: np.float32,
    DType.FLOAT16: np.float16,
    DType.BFLOAT16: ml_dtypes.bfloat16,
    DType.INT64: np.int64,
    DType.INT32: np.int32,
    DType.INT16: np.int16,
    DType.INT8: np.int8,
    DType.UINT8: np.uint8,
    DType.BOOL: np.bool_,
    DType.COMPLEX64: np.complex64,
}


def read_into(file: Any, name: str) -> bytes:
    dtype, shape = file.spec(name)
    buffer = bytearray(int(np.prod(shape)) * dtype.itemsize)
    file.read_into(name, buffer)
    return bytes(buffer)


SPECS = st.dictionaries(
    st.text(max_size=12).filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from(list(DTYPES)), st.lists(st.integers(0, 4), max_size=4)),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(specs=SPECS, seed=st.integers(0, 2**32 - 1), metadata=st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_what_the_reference_writes_comes_back(
    specs: dict[str, tuple[DType, list[int]]],
    seed: int,
    metadata: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    generator = np.random.default_rng(seed)
    arrays = {
        name: generator.integers(0, 2, [*shape, dtype.itemsize], np.uint8).view(DTYPES[dtype]).reshape(shape)
        for name, (dtype, shape) in specs.items()
    }
    path = tmp_path_factory.getbasetemp() / "round_trip.safetensors"
    path.write_bytes(save(arrays, metadata or None))
    with SafetensorsFile(path) as file:
        assert set(file.names) == set(arrays)
        assert file.metadata == metadata
        for name, array in arrays.items():
            assert file.spec(name) == (specs[name][0], array.shape)
            assert bytes(file.bytes(name)) == array.tobytes()
            assert read_into(file, name) == array.tobytes()


@pytest.mark.parametrize("count", [12, 1 << 19])
def test_bytes_are_copies_that_outlive_the_file(tmp_path: Path, count: int) -> None:
    values = np.arange(count, dtype=np.float32)
    path = tmp_path / "x.safetensors"
    save_file({"a": values}, path)
    file = SafetensorsFile(path)
    view = file.bytes("a")
    file.close()
    file.close()
    os.truncate(path, 0)  # what is mapped would be gone
    assert np.array_equal(np.frombuffer(view, np.float32), values)


def test_read_into_wants_the_right_size(tmp_path: Path) -> None:
    save_file({"a": np.zeros((2, 2), np.float32)}, tmp_path / "x.safetensors")
    with SafetensorsFile(tmp_path / "x.safetensors") as file:
        out = np.ones((2, 2), np.float32)
        file.read_into("a", out)
        assert not out.any()
        with pytest.raises(ValueError, match="a buffer of 15 bytes for the 16 of 'a'"):
            file.read_into("a", bytearray(15))
        with pytest.raises(KeyError):
            file.bytes("b")


def test_a_file_that_shrinks_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": np.zeros(100, np.float32)}, path)
    with SafetensorsFile(path) as file:
        path.open("r+b").truncate(path.stat().st_size - 8)
        with pytest.raises(WeightsFileError) as info:
            file.read_into("a", bytearray(400))
        assert info.value.kind == "data-truncated"
        with pytest.raises(WeightsFileError) as info:
            file.bytes("a")
    assert info.value.kind == "data-truncated"


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    for name in ("x.safetensors", "x.json"):
        os.mkfifo(tmp_path / name)
        (tmp_path / f"folder-{name}").mkdir()
        for path in (tmp_path / name, tmp_path / f"folder-{name}"):
            with pytest.raises(WeightsFileError) as info:
                open_safetensors(path)
            assert info.value.kind == "io"


# Each took longer than a minute, or much memory, when the work grew with the square of the size.
BOMBS = {
    "names that differ, but for the last": lambda: "{" + ",".join(f'"{i}":0' for i in range(80000)) + ',"79999":0}',
    "a shape whose product has many digits": lambda: json.dumps(
        {"a": {"dtype": "F32", "shape": [2**64 - 1] * 200000, "data_offsets": [0, 0]}}
    ),
    "sizes of many digits": lambda: json.dumps(
        {"a": {"dtype": "F32", "shape": [10**4000] * 500, "data_offsets": [0, 0]}}
    ),
    "many empty tensors in one place": lambda: json.dumps(
        {str(i): {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(20000)}
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_work_grows_with_the_size_of_the_header(tmp_path: Path, name: str) -> None:
    header = BOMBS[name]().encode()
    path = tmp_path / "bomb.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    begin = time.process_time()
    problem = None
    try:
        SafetensorsFile(path).close()
    except WeightsFileError as error:
        problem = error
    assert problem is None or problem.kind in ("duplicate-name", "overflow")
    assert len(str(problem)) < 1000
    assert time.process_time() - begin < 10  # tenths of a second, unless it is quadratic


# ---- broken files ---------------------------------------------------------------------------------------------------


def pack(header: Any, data: bytes = bytes(16)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(begin: Any = 0, end: Any = 16, dtype: Any = "F32", shape: Any = (2, 2), **more: Any) -> dict[str, Any]:
    shape = list(shape) if isinstance(shape, tuple) else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


def without(key: str) -> dict[str, Any]:
    return {k: v for k, v in tensor().items() if k != key}


BROKEN: dict[str, tuple[str, bytes]] = {
    "empty": ("too-short", b""),
    "seven bytes": ("too-short", bytes(7)),
    "huge header": ("header-too-large", struct.pack("<Q", MAX_HEADER + 1) + b"{}"),
    "the largest length": ("header-too-large", b"\xff" * 8),
    "header beyond the end": ("header-truncated", struct.pack("<Q", 3) + b"{}"),
    "not UTF-8": ("header-encoding", pack(b'{"\xff":1}')),
    "half of a surrogate pair": ("header-encoding", pack({"\ud800": tensor()})),
    "nothing": ("header-json", pack(b"")),
    "leading space": ("header-json", pack(b" {}")),
    "a list": ("header-json", pack(b"[]")),
    "half an object": ("header-json", pack(b'{"a":')),
    "two objects": ("header-json", pack(b"{}{}")),
    "nested": ("header-json", pack(b'{"a":' + b"[" * 200_000)),
    "a number of many digits": ("header-json", pack(b'{"a":' + b"9" * 5000 + b"}")),
    "a name twice": ("duplicate-name", pack(b'{"a":1,"a":1}')),
    "a key twice": ("duplicate-name", pack(b'{"a":{"dtype":"F32","dtype":"F32"}}')),
    "metadata list": ("metadata", pack({"__metadata__": []})),
    "metadata number": ("metadata", pack({"__metadata__": {"a": 1}})),
    "tensor is a list": ("tensor-keys", pack({"a": []})),
    "no dtype": ("tensor-keys", pack({"a": without("dtype")})),
    "no shape": ("tensor-keys", pack({"a": without("shape")})),
    "no offsets": ("tensor-keys", pack({"a": without("data_offsets")})),
    "another key": ("tensor-keys", pack({"a": tensor(extra=1)})),
    "unknown dtype": ("dtype", pack({"a": tensor(dtype="F31")})),
    "dtype that no model has": ("dtype", pack({"a": tensor(dtype="F4")})),
    "dtype is a list": ("dtype", pack({"a": tensor(dtype=["F32"])})),
    "shape is a number": ("shape", pack({"a": tensor(shape=4)})),
    "negative size": ("shape", pack({"a": tensor(shape=(-2, -2))})),
    "size is a float": ("shape", pack({"a": tensor(shape=(2.0, 2))})),
    "size is true": ("shape", pack({"a": tensor(shape=(True, 4))})),
    "overflow": ("overflow", pack({"a": tensor(shape=(2**33, 2**33))})),
    "overflow to what fits": ("overflow", pack({"a": tensor(shape=(2**62 + 1, 4))})),
    "overflow beside a zero": ("overflow", pack({"a": tensor(0, 0, shape=(0, 2**64))}, b"")),
    "three offsets": ("offsets", pack({"a": {**tensor(), "data_offsets": [0, 16, 16]}})),
    "negative offset": ("offsets", pack({"a": tensor(-16, 0)})),
    "offset is a float": ("offsets", pack({"a": tensor(0, 16.0)})),
    "offsets the wrong way": ("offsets", pack({"a": tensor(16, 0)})),
    "too few bytes": ("size", pack({"a": tensor(0, 12)})),
    "too many bytes": ("size", pack({"a": tensor(0, 16, "F64")})),
    "hole at the start": ("hole", pack({"a": tensor(4, 20)}, bytes(20))),
    "hole between": ("hole", pack({"a": tensor(), "b": tensor(20, 36)}, bytes(36))),
    "overlap": ("overlap", pack({"a": tensor(), "b": tensor(12, 28)}, bytes(28))),
    "same bytes": ("overlap", pack({"a": tensor(), "b": tensor()})),
    "data ends early": ("data-truncated", pack({"a": tensor()}, bytes(15))),
    "no data": ("data-truncated", pack({"a": tensor()}, b"")),
    "more data": ("trailing-data", pack({"a": tensor()}, bytes(17))),
    "data of no tensor": ("trailing-data", pack({}, bytes(1))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_file_has_its_error(tmp_path: Path, name: str) -> None:
    kind, data = BROKEN[name]
    path = tmp_path / "broken.safetensors"
    path.write_bytes(data)
    with pytest.raises(WeightsFileError) as info:
        SafetensorsFile(path)
    assert info.value.kind == kind, info.value
    assert str(info.value).startswith(f"{path}: ")


def test_every_kind_is_documented() -> None:
    listed = re.findall(r"^    ([a-z8-]+(?:, [a-z-]+)*)  ", safetensors_module.__doc__ or "", re.MULTILINE)
    kinds = {kind for line in listed for kind in line.split(", ")}
    of_sets = {"io", "index", "index-path", "index-mismatch", "repeated-tensor"}
    assert kinds - of_sets == {kind for kind, _ in BROKEN.values()}


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(WeightsNotFoundError, match="no such file"):
        SafetensorsFile(tmp_path / "none.safetensors")
    with pytest.raises(FileNotFoundError):
        open_safetensors(tmp_path / "none.safetensors.index.json")
    with pytest.raises(WeightsFileError) as info:
        SafetensorsFile(tmp_path)
    assert info.value.kind == "io"


def test_spaces_after_the_header_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(pack(json.dumps({"a": tensor()}).encode() + b"   "))
    assert SafetensorsFile(path).names == ("a",)


# ---- sets -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def shards(tmp_path: Path) -> Callable[..., Path]:
    """Two shards and their index, in which `changes` are made."""

    def make(**changes: Any) -> Path:
        save_file({"a": np.arange(3.0), "b": np.arange(4)}, tmp_path / "model-1.safetensors")
        save_file({"c": np.arange(5, dtype=np.int8)}, tmp_path / "model-2.safetensors")
        weight_map = {"a": "model-1.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}
        for name, file in changes.items():
            if file is None:
                del weight_map[name]
            else:
                weight_map[name] = file
        index = tmp_path / "model.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {"total_size": 61}, "weight_map": weight_map}))
        return index

    return make


def test_shards_by_index_and_by_list(shards: Callable[..., Path]) -> None:
    index = shards()
    paths = [index.parent / "model-1.safetensors", str(index.parent / "model-2.safetensors")]
    for source in (index, str(index), paths, iter(paths)):
        with open_safetensors(source) as files:  # type: ignore[arg-type]
            assert set(files.names) == {"a", "b", "c"}
            assert files.spec("c") == (DType.INT8, (5,))
            assert bytes(files.bytes("c")) == bytes(range(5))
            assert read_into(files, "a") == np.arange(3.0).tobytes()
    with open_safetensors(paths[0]) as files:
        assert set(files.names) == {"a", "b"}
        with pytest.raises(KeyError):
            files.spec("c")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"a": "model-2.safetensors"}, "index-mismatch"),
        ({"d": "model-2.safetensors"}, "index-mismatch"),
        ({"b": None}, "index-mismatch"),
        ({"a": "../model-1.safetensors"}, "index-path"),
        ({"a": "/model-1.safetensors"}, "index-path"),
        ({"a": ""}, "index-path"),
        ({"a": 1}, "index"),
    ],
)
def test_an_index_that_is_wrong(shards: Callable[..., Path], changes: dict[str, Any], kind: str) -> None:
    with pytest.raises(WeightsFileError) as info:
        open_safetensors(shards(**changes))
    assert info.value.kind == kind


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map":[]}', "\udcff"])
def test_an_index_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.index.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(WeightsFileError) as info:
        open_safetensors(tmp_path / "x.index.json")
    assert info.value.kind == "index"


def test_a_shard_that_is_missing(shards: Callable[..., Path]) -> None:
    index = shards()
    (index.parent / "model-2.safetensors").unlink()
    with pytest.raises(WeightsNotFoundError):
        open_safetensors(index)


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    for name in ("x", "y"):
        save_file({"a": np.zeros(1)}, tmp_path / name)
    with pytest.raises(WeightsFileError, match="also in") as info:
        open_safetensors([tmp_path / "x", tmp_path / "y"])
    assert info.value.kind == "repeated-tensor"
