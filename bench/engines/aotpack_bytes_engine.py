"""aotpack fed with plain bytes, as a service gets them from a socket: numpy is not imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.engines.aotpack_engine import PRECISIONS, build, missing, to_numpy

TITLE = "aotpack, bytes"
# The archive is the same one.
SHARES_BUILD = "aotpack"

__all__ = ["PRECISIONS", "SHARES_BUILD", "TITLE", "build", "missing", "open_session", "to_numpy"]


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import aotpack

    context = aotpack.load(artifact).context(num_threads=threads)
    args = [read(path) for path in inputs]

    def call() -> Any:
        return context(*args)

    return call


def read(path: str) -> Any:
    """The array of an .npy file, without numpy. Knows what the benches write: C order, f2, f4 and i8."""
    from aotpack import Tensor

    data = Path(path).read_bytes()
    # Version 1.0 of the format: magic, version, length of the header, header (a Python dict), data.
    length = int.from_bytes(data[8:10], "little")
    header = data[10 : 10 + length].decode("latin1")
    dtype = {"<f2": "float16", "<f4": "float32", "<i8": "int64"}[header.partition("'descr': '")[2].partition("'")[0]]
    sizes = header.partition("'shape': (")[2].partition(")")[0].split(",")
    return Tensor.from_buffer(memoryview(data)[10 + length :], dtype, [int(size) for size in sizes if size.strip()])
