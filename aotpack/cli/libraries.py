"""Libraries of NVIDIA's on this machine, as the runtime finds them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aotpack.runtime.providers import FILES, installed_folders


@dataclass(frozen=True)
class Versions:
    """How a library tells its version.

    Attributes:
        ask: returns it, given the library; None where the library does not say.
        major: what a major version counts, e.g. 1000 in 12000.
        minor: what a minor version counts.
        first: the first major version that the runtime uses, as csrc/runtime/hal/cuda/<provider>.cpp has it.
        last: the last one.
    """

    ask: Callable[[ctypes.CDLL], int | None]
    major: int
    minor: int
    first: int
    last: int


def _by_pointer(function: str) -> Callable[[ctypes.CDLL], int | None]:
    def ask(library: ctypes.CDLL) -> int | None:
        version = ctypes.c_int()
        return version.value if getattr(library, function)(ctypes.byref(version)) == 0 else None

    return ask


def _by_result(function: str) -> Callable[[ctypes.CDLL], int | None]:
    def ask(library: ctypes.CDLL) -> int | None:
        get_version = getattr(library, function)
        get_version.restype = ctypes.c_size_t
        version = int(get_version())
        # cuDNN's version 8.9.2 is 8902, and 9.1.0 is 90100.
        return version if version >= 10000 else version // 1000 * 10000 + version % 1000

    return ask


VERSIONS = {
    "cublaslt": Versions(_by_result("cublasLtGetVersion"), 10000, 100, 12, 13),
    "cudnn": Versions(_by_result("cudnnGetVersion"), 10000, 100, 8, 9),
    "cufft": Versions(_by_pointer("cufftGetVersion"), 1000, 100, 11, 12),
    "cusolver": Versions(_by_pointer("cusolverGetVersion"), 1000, 100, 11, 12),
}


@dataclass(frozen=True)
class Library:
    """A library: its provider, its file, its version such as 12000, and whether the runtime uses it."""

    provider: str
    path: str
    version: int
    is_usable: bool

    def describe(self) -> str:
        """`cufft 12.0.0`."""
        known = VERSIONS[self.provider]
        minor = self.version % known.major // known.minor
        version = f"{self.version // known.major}.{minor}.{self.version % known.minor}"
        used = f" (not used: versions {known.first} and {known.last} are)"
        return f"{self.provider} {version}" + ("" if self.is_usable else used)


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
        known = VERSIONS[provider]
        try:
            version = known.ask(library)
        except AttributeError:
            version = None
        usable = version is not None and known.first <= version // known.major <= known.last
        return Library(provider, place, version or 0, usable)
    return None
