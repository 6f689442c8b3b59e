"""Writes `.safetensors` files, one tensor at a time; needs nothing but Python."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Mapping
from typing import Any

from aotpack.archive.safetensors import DTYPE_NAMES
from aotpack.archive.writer import as_bytes, write_all
from aotpack.spec import DType

Tensors = Mapping[str, tuple[DType, tuple[int, ...]]]


def write_safetensors(
    path: str | os.PathLike[str],
    tensors: Tensors,
    value: Callable[[str], bytes | memoryview],
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a new file.

    Args:
        path: of the file.
        tensors: dtype and shape of each tensor by its name, in the order of the data.
        value: returns the bytes of a tensor, row by row; called once for each.
        metadata: strings by their names; None: the file has none.

    Raises:
        ValueError: the format has no name for a dtype, or a value has another number of bytes.
        OSError: the file cannot be written.
    """
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, (dtype, shape) in tensors.items():
        if dtype not in DTYPE_NAMES:
            raise ValueError(f"safetensors has no dtype {dtype}")
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    # Data begin at a multiple of 8, as the format asks for.
    text += b" " * (-len(text) % 8)
    with open(path, "xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in tensors:
            begin, end = header[name]["data_offsets"]
            data = as_bytes(value(name))
            if data.nbytes != end - begin:
                raise ValueError(f"{name!r} has {data.nbytes} bytes; its shape and dtype have {end - begin}")
            write_all(file.write, data)
