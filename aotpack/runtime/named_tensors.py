"""Named tensors as the native module accepts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aotpack.archive.safetensors import SafetensorsSet
from aotpack.errors import WeightsError


def raw_tensors(files: SafetensorsSet) -> tuple[list[str], list[tuple[str, tuple[int, ...], memoryview]]]:
    """The tensors of files as the native module accepts them: names, and for each dtype, shape and bytes."""
    names = list(files.names)
    raw = []
    for name in names:
        _check_name(name)
        dtype, shape = files.spec(name)
        raw.append((dtype.value, shape, files.bytes(name)))
    return names, raw


def by_name(tensors: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    """Names and arrays in the same order."""
    names = []
    arrays = []
    for name in tensors:
        if not isinstance(name, str):
            raise WeightsError(f"the name of a tensor must be a string, got {name!r}")
        _check_name(name)
        array = tensors[name]
        # torch's parameters: where an array comes from does not matter when it is copied.
        if getattr(array, "requires_grad", False):
            array = array.detach()
        names.append(name)
        arrays.append(array)
    return names, arrays


def _check_name(name: str) -> None:
    # The runtime knows names as UTF-8 text that ends at a zero.
    try:
        if b"\0" not in name.encode("utf-8"):
            return
    except UnicodeEncodeError:
        pass
    raise WeightsError(f"unknown tensor {name!r}: names cannot contain null characters or lone surrogates")
