"""Checks of what models and contexts are made with, as the C interface has it."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def path_text(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"the path must be a string or a path of strings, got {text!r}")
    if "\0" in text:
        raise ValueError(f"the path {text!r} contains a null character")
    return text


# Numbers of kinds of devices in DLPack.
_DEVICE_TYPES = {"cpu": 1, "cuda": 2}


def device_id(name: str) -> tuple[int, int]:
    """The type and number of a device in DLPack, of names such as "cpu" and "cuda:1"."""
    kind, colon, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    is_number = number.isascii() and number.isdigit() and len(number) <= 6
    if kind not in _DEVICE_TYPES or is_number != bool(colon):
        raise ValueError(f'device must be the name of a device, such as "cpu"; got {name!r}')
    return _DEVICE_TYPES[kind], int(number or 0)


def device_name(device: tuple[int, int]) -> str:
    kind, number = device
    name = next((name for name, value in _DEVICE_TYPES.items() if value == kind), f"device type {kind}")
    return name if name == "cpu" else f"{name}:{number}"


def checked_threads(num_threads: int | None) -> int:
    if num_threads is None:
        return 0
    if not 0 <= num_threads <= 1 << 16:
        raise ValueError(f"num_threads must be at least 1, or None for one per core; got {num_threads}")
    return num_threads


def checked_graphs(graphs: int | None) -> int:
    """As the C interface has it: 0 is the default, and -1 is none."""
    if graphs is None:
        return 0
    if not 0 <= graphs <= 4096:
        raise ValueError(f"graphs must be in [0, 4096], got {graphs}")
    return graphs or -1


def provider_path(device: str) -> str:
    """Where pip has installed libraries that models on this device may ask for."""
    if device == "cpu":
        return ""
    from aotpack.runtime.providers import installed_folders

    return ":".join(installed_folders())


def stream_handle(stream: int | None) -> int:
    """As the C interface has it: 0 is none, and 1 the legacy default stream, which CUDA and torch also call 0."""
    return 0 if stream is None else stream or 1


def in_order(arrays: Any, names: list[str], what: str, optional: Sequence[str]) -> list[Any]:
    if not hasattr(arrays, "keys"):
        return list(arrays)
    from aotpack.errors import InputError

    for name in names:
        if name not in arrays and name not in optional:
            raise InputError(f"the {what} {name!r} is missing", hint=f"the {what}s are {', '.join(names)}")
    for name in arrays:
        if name not in names:
            raise InputError(f"unknown {what} {name!r}", hint=f"the {what}s are {', '.join(names)}")
    given = {name: arrays[name] for name in arrays}
    return [given.get(name) for name in names]
