"""Runs calls of operators in a process without torch, under sanitizers.

`python -m tests.odd_inputs.worker LIBRARY CALLS RESULTS`

CALLS is a pickle of a list of (label, function, values, result count, threads). A value is ("tensors", [tensor, None
for an absent one]), ("ints", [..]), ("reals", [..]), ("text", "..") or None. A tensor is a dict: data (bytes), offset
(elements), sizes, strides, dtype (number), item (bytes of an element), shift (bytes that it lies behind an aligned
address).

RESULTS gets a pickle of a list: an error's text, or (results, given): the tensors returned, and those given as they are
afterwards. The label of the call that runs is on the last line of RESULTS.label.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
from pathlib import Path
from typing import Any

from tests.support.operators.descriptors import Descriptor


class Value(ctypes.Structure):
    """Value of odd.h."""

    _fields_ = [
        ("tensors", ctypes.POINTER(Descriptor)),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
        ("reals", ctypes.POINTER(ctypes.c_double)),
        ("text", ctypes.c_char_p),
        ("count", ctypes.c_int64),
    ]


class Runner:
    """One loaded library of operators."""

    def __init__(self, library: str) -> None:
        self._lib = ctypes.CDLL(library)
        self._lib.odd_allocate.restype = ctypes.c_void_p
        self._lib.odd_allocate.argtypes = [ctypes.c_int64]
        self._lib.odd_free.argtypes = [ctypes.c_void_p]
        self._lib.operators_release.argtypes = [ctypes.c_void_p]
        self._lib.operators_live_blocks.restype = ctypes.c_int64

    def run(self, function: str, values: list[Any], result_count: int, threads: int) -> Any:
        given: list[tuple[Any, Descriptor, int]] = []
        keep: list[Any] = []
        array = (Value * max(len(values), 1))(*(self._value(value, given, keep) for value in values))
        results = (Descriptor * max(result_count, 1))()
        message = ctypes.create_string_buffer(1024)
        before = self._lib.operators_live_blocks()
        code = self._lib.odd_run(
            function.encode(), array, len(values), threads, result_count, results, message, len(message)
        )
        answer: Any = message.value.decode()
        if code == 0:
            made = [self._take(results[i]) for i in range(result_count)]
            answer = (made, [self._read(descriptor) for _, descriptor, _ in given])
        for _, _, block in given:
            self._lib.odd_free(block)
        if self._lib.operators_live_blocks() != before:
            raise AssertionError(f"{function} leaked memory")
        return answer

    def _value(self, value: Any, given: list[tuple[Any, Descriptor, int]], keep: list[Any]) -> Value:
        if value is None:
            return Value(count=-1)
        kind, content = value
        if kind == "text":
            return Value(text=content.encode(), count=1)
        if kind == "tensors":
            array: Any = (Descriptor * max(len(content), 1))(*(self._tensor(tensor, given) for tensor in content))
        elif kind == "ints":
            array = (ctypes.c_int64 * max(len(content), 1))(*content)
        else:
            array = (ctypes.c_double * max(len(content), 1))(*content)
        keep.append(array)
        return Value(**{kind: array}, count=len(content))

    def _tensor(self, tensor: Any, given: list[tuple[Any, Descriptor, int]]) -> Descriptor:
        if tensor is None:
            return Descriptor.absent()
        data, shift = tensor["data"], tensor["shift"]
        block = self._lib.odd_allocate(len(data) + shift)
        ctypes.memmove(block + shift, data, len(data))
        first = block + shift + tensor["offset"] * tensor["item"]
        descriptor = Descriptor.of(first, tensor["dtype"], tensor["sizes"], tensor["strides"])
        given.append((tensor, descriptor, block))
        return descriptor

    def _take(self, descriptor: Descriptor) -> dict[str, Any]:
        tensor = self._read(descriptor)
        if descriptor.block:
            self._lib.operators_release(descriptor.block)
        return tensor

    @staticmethod
    def _read(descriptor: Descriptor) -> dict[str, Any]:
        sizes, strides = descriptor.layout
        data = ctypes.string_at(descriptor.data, descriptor.nbytes) if descriptor.nbytes else b""
        return {"data": data, "sizes": sizes, "strides": strides, "dtype": descriptor.dtype}


def main(library: str, calls: str, results: str) -> None:
    runner = Runner(library)
    answers = []
    with open(results + ".label", "w") as labels:
        for label, function, values, count, threads in pickle.loads(Path(calls).read_bytes()):
            print(label, file=labels, flush=True)
            answers.append(runner.run(function, values, count, threads))
    Path(results).write_bytes(pickle.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
