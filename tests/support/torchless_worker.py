"""The process behind tests/support/torchless.py: answers requests on stdin and stdout, and never imports torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

import aotpack
from tests.support.torchless import Array, map_tree, receive, send

_OTHERS = {"bool": np.bool_} | {
    name: getattr(ml_dtypes, name)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    dtype = np.dtype(_OTHERS.get(array.dtype, array.dtype))
    if not array.data:
        return np.empty(array.shape, dtype)
    return np.ndarray(array.shape, dtype, bytearray(array.data), 0, [s * dtype.itemsize for s in array.strides])


def to_array(value: Any) -> Array:
    value = np.asarray(value)
    strides = tuple(step // value.itemsize for step in value.strides)
    extent = 1 + sum((size - 1) * step for size, step in zip(value.shape, strides, strict=True)) if value.size else 0
    # As plain bytes: numpy has no name of the dtypes of ml_dtypes.
    raw = value.view(np.dtype(f"V{value.itemsize}"))
    flat = np.lib.stride_tricks.as_strided(raw, (extent,), (value.itemsize,))
    return Array(str(value.dtype), value.shape, strides, flat.tobytes())


def main(*, torchless: bool = True, more: Mapping[str, Callable[..., Any]] | None = None) -> None:
    """Answers until stdin ends. `more` has further commands."""
    # What the model prints must not end up among the answers.
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    objects: list[Any] = []

    def keep(value: Any) -> int:
        objects.append(value)
        return len(objects) - 1

    def answer(command: str, arguments: tuple[Any, ...]) -> Any:
        if command == "load":
            path, options = arguments
            return keep(aotpack.load(path, **options))
        if more is not None and command in more:
            return more[command](*arguments)
        target = objects[arguments[0]]
        if command == "context":
            return keep(target.context(**arguments[1]))
        if command == "entry":
            return keep(target.entry(arguments[1]))
        *names, args, kwargs = arguments[1:]
        args, kwargs = map_tree((args, kwargs), Array, to_numpy)
        if command == "method":
            return map_tree(getattr(target, names[0])(*args, **kwargs), object, _leaf)
        assert command == "call"
        result = map_tree(target(*args, **kwargs), np.ndarray, to_array)
        result = map_tree(result, aotpack.Tensor, to_array)
        return result, map_tree((args, kwargs), np.ndarray, to_array)

    while True:
        try:
            command, arguments = receive(requests)
        except EOFError:
            return
        try:
            message = ("ok", answer(command, arguments))
        except Exception as error:
            message = ("error", error)
        assert not torchless or "torch" not in sys.modules, "the runtime imported torch"
        send(answers, message)


def _leaf(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _leaf(item) for key, item in value.items()}
    return to_array(value) if isinstance(value, (np.ndarray, aotpack.Tensor)) else value


if __name__ == "__main__":
    main()
