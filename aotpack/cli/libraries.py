"""Libraries of NVIDIA's on this machine, as the runtime finds them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass

from aotpack.runtime.providers import FILES, installed_folders

# The versions that the runtime uses, as csrc/runtime/hal/cuda/cufft.cpp and cusolver.cpp have them: from the first up
# to, but not including, the second.
USABLE = (11000, 13000)


@dataclass(frozen=True)
class Library:
    """A library: its provider, its file, its version such as 12000, and whether the runtime uses it."""

    provider: str
    path: str
    version: int
    is_usable: bool

    def describe(self) -> str:
        """`cufft 12.0.0`."""
        version = f"{self.version // 1000}.{self.version % 1000 // 100}.{self.version % 100}"
        return f"{self.provider} {version}" + ("" if self.is_usable else " (not used: versions 11 and 12 are)")


def find_libraries() -> list[Library]:
    """One library of each provider at most. They are loaded to ask for their versions."""
    return [library for provider in FILES if (library := _find(provider)) is not None]


def _places(files: tuple[str, ...]) -> Iterator[str]:
    """As the runtime tries them."""
    given = [folder for folder in os.environ.get("AOTPACK_PROVIDER_PATH", "").split(":") if folder]
    yield from (f"{folder}/{name}" for folder in (*given, *installed_folders()) for name in files)
    yield from files


def _find(provider: str) -> Library | None:
    for place in _places(FILES[provider]):
        try:
            library = ctypes.CDLL(place)
        except OSError:
            continue
        version = ctypes.c_int()
        try:
            is_known = getattr(library, f"{provider}GetVersion")(ctypes.byref(version)) == 0
        except AttributeError:
            is_known = False
        return Library(provider, place, version.value, is_known and USABLE[0] <= version.value < USABLE[1])
    return None
