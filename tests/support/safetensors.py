"""Writes `.safetensors` files without torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_DTYPES = {"float32": "F32", "float64": "F64", "int64": "I64", "uint16": "BF16", "bool": "BOOL"}


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Path:
    """A file of these arrays; those of uint16 are bfloat16."""
    header: dict[str, Any] = {}
    data = b""
    for name, array in arrays.items():
        raw = array.tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": _DTYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path
