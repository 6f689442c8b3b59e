"""Archives in a process that never imports torch, called as if they were here.

`Torchless()` starts the process (tests/support/torchless_worker.py); `load` gives a model that takes and returns torch
tensors, with the strides that the runtime gave them. What a call writes into its inputs is written into the caller's
tensors too. This module itself imports torch only where a tensor is made of an answer.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).resolve().parents[2]
_WORKER = "tests.support.torchless_worker"


@dataclass(frozen=True)
class Array:
    """A tensor on its way: `data` holds the elements from the first to the last that the strides reach."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    data: bytes


def map_tree(value: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """The value with all leaves of a type replaced; containers are dicts, lists, tuples and namedtuples."""
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, dict):
        return {key: map_tree(item, kind, function) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tree(item, kind, function) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tree(item, kind, function) for item in value)
    return value


def send(stream: BinaryIO, message: Any) -> None:
    """Writes a message with its length in front."""
    data = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Reads a message; EOFError when the other side is gone."""
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(stream.read(struct.unpack("<Q", head)[0]))


def to_array(tensor: Any) -> Array:
    """A torch tensor as it lies."""
    import torch

    tensor = tensor.detach()
    extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    extent = extent if tensor.numel() else 0
    flat = torch.as_strided(tensor, (extent,), (1,), tensor.storage_offset())
    flat = flat.resolve_conj().resolve_neg().contiguous()
    raw = flat.view(torch.uint8).numpy().tobytes() if extent else b""
    return Array(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.stride(), raw)


def to_tensor(array: Array) -> Any:
    """The torch tensor of an answer."""
    import torch

    dtype = getattr(torch, array.dtype)
    if not array.data:
        return torch.empty_strided(array.shape, array.strides, dtype=dtype)
    return torch.frombuffer(bytearray(array.data), dtype=dtype).as_strided(array.shape, array.strides)


class Torchless:
    """The process. Ends with `close`, or with this one."""

    def __init__(self, environment: dict[str, str] | None = None, program: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", *(program or [_WORKER])]
        given = os.environ | (environment or {})
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=given)

    def ask(self, command: str, *arguments: Any) -> Any:
        """Has the process do something; what it raises is raised here."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        send(self._process.stdin, (command, arguments))
        kind, value = receive(self._process.stdout)
        if kind == "error":
            raise value
        return value

    def load(self, path: str | Path, **options: Any) -> RemoteModel:
        return RemoteModel(self, self.ask("load", str(path), options), str(path))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _equal(a: Any, b: Any) -> bool:
    """Whether tensors have equal elements, NaN and NaN among them."""
    import torch

    if a.is_floating_point() and a.dtype.itemsize == 1:
        # torch has few functions for them.
        a, b = a.float(), b.float()
    return torch.equal(a.nan_to_num(), b.nan_to_num())


class RemoteModel:
    """A model, entry or context of the other process."""

    def __init__(self, process: Torchless, number: int, path: str) -> None:
        self._process = process
        self._number = number
        self.path = path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        sent = map_tree((args, kwargs), torch.Tensor, to_array)
        result, after = self._process.ask("call", self._number, *sent)

        def write_back(before: Any, now: Any) -> None:
            if isinstance(before, torch.Tensor):
                value = to_tensor(now)
                if not _equal(before.detach(), value):
                    with torch.no_grad():
                        before.copy_(value)
            elif isinstance(before, dict):
                for key in before:
                    write_back(before[key], now[key])
            elif isinstance(before, (list, tuple)):
                for b, n in zip(before, now, strict=True):
                    write_back(b, n)

        write_back((args, kwargs), after)
        return map_tree(result, Array, to_tensor)

    def context(self, **options: Any) -> RemoteModel:
        return RemoteModel(self._process, self._process.ask("context", self._number, options), self.path)

    def entry(self, name: str) -> RemoteModel:
        return RemoteModel(self._process, self._process.ask("entry", self._number, name), self.path)

    def method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a method by name with tensors or plain values."""
        import torch

        sent = map_tree((args, kwargs), torch.Tensor, to_array)
        return map_tree(self._process.ask("method", self._number, name, *sent), Array, to_tensor)
