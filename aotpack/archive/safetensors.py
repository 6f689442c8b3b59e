"""Reads `.safetensors` files, strictly, and sets of them; needs nothing but Python.

The format is https://github.com/huggingface/safetensors#format: the length of a header in 8 little-endian bytes, the
header (JSON: name → dtype, shape, data_offsets; `__metadata__`), the data. All of the header is validated before any
tensor can be had. A wrong file is a `WeightsFileError` whose `kind` is one of

    io                  the operating system refused
    too-short           no room for the length of the header
    header-too-large    a header of more than 100 MB
    header-truncated    the file ends before its header does
    header-encoding     the header, or a name in it, is not Unicode text
    header-json         it is no JSON, or does not begin with an object
    duplicate-name      a key twice in one object
    metadata            `__metadata__` is no object of strings
    tensor-keys         a tensor has other keys than dtype, shape and data_offsets
    dtype               a dtype that is unknown or that no model has
    shape               a shape that is not a list of sizes
    overflow            more bytes than 64 bits count
    offsets             data_offsets is no pair of numbers in order
    size                shape and dtype make another number of bytes than data_offsets
    hole, overlap       between the data of tensors
    data-truncated      the file ends before the data of a tensor does
    trailing-data       bytes that no tensor has at the end
    index, index-path   an index that is malformed, or names a file outside of its folder
    index-mismatch      an index and its files disagree on which tensor is where
    repeated-tensor     two files of a list have a tensor of one name
"""

from __future__ import annotations

import builtins
import json
import mmap
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from aotpack.archive.files import open_regular
from aotpack.errors import WeightsFileError, WeightsNotFoundError
from aotpack.spec import DType

MAX_HEADER = 100_000_000
_LARGE = 1 << 20
_DTYPES = {
    "F64": DType.FLOAT64,
    "F32": DType.FLOAT32,
    "F16": DType.FLOAT16,
    "BF16": DType.BFLOAT16,
    "I64": DType.INT64,
    "I32": DType.INT32,
    "I16": DType.INT16,
    "I8": DType.INT8,
    "U8": DType.UINT8,
    "U16": DType.UINT16,
    "U32": DType.UINT32,
    "U64": DType.UINT64,
    "BOOL": DType.BOOL,
    "C64": DType.COMPLEX64,
    "F8_E4M3": DType.FLOAT8_E4M3FN,
    "F8_E4M3FNUZ": DType.FLOAT8_E4M3FNUZ,
    "F8_E5M2": DType.FLOAT8_E5M2,
    "F8_E5M2FNUZ": DType.FLOAT8_E5M2FNUZ,
}
# The format's names of dtypes; it has none for complex128.
DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_TENSOR_KEYS = {"dtype", "shape", "data_offsets"}
_UINT64_MAX = (1 << 64) - 1

Paths = str | os.PathLike[str]


class SafetensorsFile:
    """One `.safetensors` file, open for reading.

    Args:
        path: the file.

    Raises:
        WeightsNotFoundError: there is no such file.
        WeightsFileError: it is not a well-formed file of tensors; `kind` says in which way.
    """

    path: Path
    metadata: Mapping[str, str]

    def __init__(self, path: Paths) -> None:
        self.path = Path(path)
        try:
            self._fd = open_regular(self.path)
        except FileNotFoundError:
            raise WeightsNotFoundError(f"no such file: {self.path}") from None
        except OSError as error:
            self._fail("io", f"cannot open: {error.strerror or error}")
        try:
            header, self._start, self._end = self._read_header()
            self.metadata = self._metadata(header.pop("__metadata__", {}))
            # name → dtype, shape, the first and one past the last byte, counted from the start of the data
            self._tensors = {name: self._tensor(name, value) for name, value in header.items()}
            self._check_data()
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors' names, in the order of the header."""
        return tuple(self._tensors)

    def spec(self, name: str) -> tuple[DType, tuple[int, ...]]:
        """Dtype and shape of a tensor.

        Raises:
            KeyError: there is no tensor of this name.
        """
        return self._tensors[name][:2]

    def bytes(self, name: str) -> memoryview:
        """The bytes of a tensor, row-major, read into memory of its own. Aligned to nothing.

        Raises:
            KeyError: there is no tensor of this name.
            WeightsFileError: the file cannot be read, or has become shorter.
        """
        _, _, begin, end = self._tensors[name]
        # Large ones from the system, which gives pages of zeros when they are touched; a bytearray would write them.
        buffer = mmap.mmap(-1, end - begin) if end - begin >= _LARGE else bytearray(end - begin)
        self.read_into(name, buffer)
        return memoryview(buffer)

    def read_into(self, name: str, buffer: Any) -> None:
        """Reads the bytes of a tensor into a writable, C-contiguous buffer of exactly their number. No page of the file
        becomes part of this process: a file that is written to meanwhile is an error or a mixture, and never a fault.

        Raises:
            KeyError: there is no tensor of this name.
            ValueError: the buffer has another size.
            WeightsFileError: the file cannot be read, or has become shorter.
        """
        _, _, begin, end = self._tensors[name]
        view = memoryview(buffer)
        if view.nbytes != end - begin:
            raise ValueError(f"a buffer of {view.nbytes} bytes for the {end - begin} of {name!r}")
        if begin == end:
            return
        view = view.cast("B")
        at = 0
        while at < view.nbytes:
            try:
                count = os.preadv(self._fd, [view[at:]], self._start + begin + at)
            except OSError as error:
                self._fail("io", f"cannot read {name!r}: {error.strerror or error}")
            if count == 0:
                self._fail("data-truncated", f"the file ends within {name!r}")
            at += count

    def close(self) -> None:
        """Closes the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _fail(self, kind: str, message: str) -> NoReturn:
        raise WeightsFileError(f"{self.path}: {message}", kind=kind)

    def _read_header(self) -> tuple[dict[str, Any], int, int]:
        """The header, and where the data starts and ends in the file."""
        try:
            size = os.fstat(self._fd).st_size
            prefix = os.pread(self._fd, 8, 0)
            if len(prefix) < 8:
                self._fail("too-short", f"{len(prefix)} bytes are not a safetensors file")
            (length,) = struct.unpack("<Q", prefix)
            if length > MAX_HEADER:
                self._fail("header-too-large", f"a header of {length} bytes; at most {MAX_HEADER} are allowed")
            if length > size - 8:
                self._fail("header-truncated", f"a header of {length} bytes in a file of {size}")
            data = b""
            while len(data) < length:
                piece = os.pread(self._fd, length - len(data), 8 + len(data))
                if not piece:
                    self._fail("header-truncated", f"the file ends within the header of {length} bytes")
                data += piece
        except OSError as error:
            self._fail("io", f"cannot read: {error.strerror or error}")
        return self._parse(data), 8 + length, size

    def _parse(self, data: builtins.bytes) -> dict[str, Any]:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            self._fail("header-encoding", f"the header is not UTF-8 at byte {error.start}")
        if not text.startswith("{"):
            self._fail("header-json", "the header does not begin with an object")
        return _json(text, "header", self._fail)

    def _metadata(self, value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            self._fail("metadata", "__metadata__ must be an object of strings")
        return value

    def _tensor(self, name: str, value: Any) -> tuple[DType, tuple[int, ...], int, int]:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            self._fail("header-encoding", f"the name {name!r} has half of a surrogate pair")
        if not isinstance(value, dict) or set(value) != _TENSOR_KEYS:
            self._fail("tensor-keys", f"tensor {name!r} must have the keys dtype, shape and data_offsets")
        dtype = _DTYPES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
        if dtype is None:
            self._fail(
                "dtype", f"tensor {name!r} has the dtype {_short(value['dtype'])}; known are {', '.join(_DTYPES)}"
            )
        shape, offsets = value["shape"], value["data_offsets"]
        if not isinstance(shape, list) or not all(_is_size(size) for size in shape):
            self._fail("shape", f"tensor {name!r} has the shape {_short(shape)}")
        nbytes = _product(shape, dtype.itemsize)
        if nbytes is None:
            self._fail("overflow", f"tensor {name!r} of shape {_short(shape)} is larger than 64 bits count")
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(offset) for offset in offsets):
            self._fail("offsets", f"tensor {name!r} has the data_offsets {_short(offsets)}")
        begin, end = offsets
        if begin > end:
            self._fail("offsets", f"the data of tensor {name!r} ends before it begins: {offsets}")
        if end - begin != nbytes:
            self._fail("size", f"tensor {name!r} has {end - begin} bytes; dtype and shape make {nbytes}")
        return dtype, tuple(shape), begin, end

    def _check_data(self) -> None:
        """Every byte of the data belongs to one tensor."""
        at = 0
        size = self._end - self._start
        for name, (_, _, begin, end) in sorted(self._tensors.items(), key=lambda item: item[1][2:]):
            if begin > at:
                self._fail("hole", f"no tensor has the bytes {at} to {begin} of the data")
            if begin < at:
                self._fail("overlap", f"the data of tensor {name!r} begins within another's")
            if end > size:
                self._fail("data-truncated", f"the data of tensor {name!r} ends at {end}, the file's at {size}")
            at = end
        if at != size:
            self._fail("trailing-data", f"{size - at} bytes follow the last tensor")


class SafetensorsSet:
    """Tensors of one or more files under their names; what `open_safetensors` returns. Its methods are those of
    `SafetensorsFile`.
    """

    def __init__(self, files: Iterable[SafetensorsFile], owner: Mapping[str, SafetensorsFile]) -> None:
        self.files = tuple(files)
        self._owner = dict(owner)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._owner)

    def spec(self, name: str) -> tuple[DType, tuple[int, ...]]:
        return self._owner[name].spec(name)

    def bytes(self, name: str) -> memoryview:
        return self._owner[name].bytes(name)

    def read_into(self, name: str, buffer: Any) -> None:
        self._owner[name].read_into(name, buffer)

    def close(self) -> None:
        for file in self.files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def open_safetensors(source: Paths | Iterable[Paths]) -> SafetensorsSet:
    """Opens a `.safetensors` file, the files that a `….safetensors.index.json` names, or a list of files.

    Raises:
        WeightsNotFoundError: a file is not there.
        WeightsFileError: a file is malformed, an index disagrees with its files, or two files of a list have a tensor
            of the same name.
    """
    files: list[SafetensorsFile] = []
    try:
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            if path.suffix == ".json":
                return _open_index(path, files)
            source = [path]
        owner: dict[str, SafetensorsFile] = {}
        for item in source:
            files.append(SafetensorsFile(item))
            for name in files[-1].names:
                if name in owner:
                    message = f"{files[-1].path}: the tensor {name!r} is also in {owner[name].path}"
                    raise WeightsFileError(message, kind="repeated-tensor")
                owner[name] = files[-1]
        return SafetensorsSet(files, owner)
    except BaseException:
        for file in files:
            file.close()
        raise


def _open_index(path: Path, files: list[SafetensorsFile]) -> SafetensorsSet:
    def fail(kind: str, message: str) -> NoReturn:
        raise WeightsFileError(f"{path}: {message}", kind=kind)

    try:
        with open(open_regular(path), "rb") as stream:
            data = stream.read(MAX_HEADER + 1)
        if len(data) > MAX_HEADER:
            fail("index", f"more than {MAX_HEADER} bytes")
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise WeightsNotFoundError(f"no such file: {path}") from None
    except OSError as error:
        fail("io", f"cannot read: {error.strerror or error}")
    except UnicodeDecodeError:
        fail("index", "not UTF-8")
    value = _json(text, "index", fail)
    weight_map = value.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        fail("index", "weight_map must be an object from the tensors' names to files")
    by_file: dict[str, SafetensorsFile] = {}
    for name in weight_map.values():
        if name in by_file:
            continue
        relative = Path(name)
        if not relative.parts or relative.is_absolute() or ".." in relative.parts or "\0" in name:
            fail("index-path", f"{name!r} is not a file below the index's directory")
        files.append(SafetensorsFile(path.parent / relative))
        by_file[name] = files[-1]
    for tensor, name in weight_map.items():
        if tensor not in by_file[name]._tensors:
            fail("index-mismatch", f"the tensor {tensor!r} is not in {name}")
    for name, file in by_file.items():
        for tensor in file.names:
            if weight_map.get(tensor) != name:
                fail("index-mismatch", f"{name} has the tensor {tensor!r}, which the index does not say is there")
    return SafetensorsSet(files, {tensor: by_file[name] for tensor, name in weight_map.items()})


def _json(text: str, kind: str, fail: Callable[[str, str], NoReturn]) -> dict[str, Any]:
    """An object without a key twice."""
    where = "header-json" if kind == "header" else kind

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            twice = next(key for key, count in Counter(key for key, _ in items).items() if count > 1)
            fail("duplicate-name", f"{twice!r} appears twice in one object")
        return result

    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        fail(where, f"the {kind} is nested too deeply")
    except WeightsFileError:
        raise
    except ValueError as error:
        fail(where, f"the {kind} is not JSON: {error}")
    if isinstance(value, dict):
        return value
    fail(where, f"the {kind} is not an object")


def _product(sizes: Iterable[int], start: int) -> int | None:
    """The product with `start`; None when it, or one of the sizes, does not fit 64 bits."""
    product, empty = start, False
    for size in sizes:
        if size > _UINT64_MAX:
            return None
        if size == 0:
            empty = True
        elif product <= _UINT64_MAX:  # never a number of many digits
            product *= size
    return 0 if empty else product if product <= _UINT64_MAX else None


def _short(value: Any) -> str:
    text = repr(value[:20] if isinstance(value, list) else value)
    more = len(text) > 200 or (isinstance(value, list) and len(value) > 20)
    return f"{text[:200]}…" if more else text


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
