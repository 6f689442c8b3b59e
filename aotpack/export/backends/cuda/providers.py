"""Libraries of NVIDIA's that a module calls where the host has them, in front of its own code for the same operators.

csrc/module/device/<provider>.h declares the functions: each returns whether a library did the work. Those in front of
steps on the host have the names that module/declare has them under. Those in front of launches of kernels are called as
`ops/cuda/attempts.py` says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from aotpack.building import native_sources
from aotpack.building.operator_declarations import Function
from aotpack.errors import BuildError

# By the names that users give.
OF_KERNELS = ("cublaslt", "cudnn")
OF_HOST_STEPS = ("cufft", "cusolver")
PROVIDERS = (*OF_KERNELS, *OF_HOST_STEPS)

_FUNCTION = re.compile(r"^bool (\w+)\(", re.MULTILINE)
_PREFIX = "aoti_torch_cpu_"


def checked(names: Collection[str]) -> tuple[str, ...]:
    """`names`, each once, in a fixed order.

    Raises:
        BuildError: there is no provider of a name.
    """
    for name in names:
        if name not in PROVIDERS:
            raise BuildError(f"there is no provider {name!r}", hint=f"the providers are {', '.join(PROVIDERS)}")
    return ordered(names)


def ordered(names: Collection[str]) -> tuple[str, ...]:
    """`names`, each once, in a fixed order."""
    return tuple(name for name in PROVIDERS if name in names)


@lru_cache(maxsize=1)
def _provided() -> dict[str, str]:
    """Provider by the function for CPUs."""
    folder = native_sources.module_folder() / "device"
    return {
        f"{_PREFIX}{name}": provider
        for provider in OF_HOST_STEPS
        for name in _FUNCTION.findall((folder / f"{provider}.h").read_text())
    }


def provider_of(function: Function, providers: Collection[str]) -> str:
    """The one of `providers` that has the function; "" if none does."""
    provider = _provided().get(function.name, "")
    return provider if provider in providers else ""


def providers_of(functions: Iterable[Function], providers: Collection[str]) -> tuple[str, ...]:
    """Those of `providers` that have any of the functions."""
    used = {provider_of(function, providers) for function in functions}
    return ordered(used)


def attempt(function: Function, provider: str) -> str:
    """The C++ name of the function by which `provider` does the work of another one."""
    return f"aotpack::module::{provider}::{function.name.removeprefix(_PREFIX)}"


def sources(providers: Collection[str]) -> tuple[str, ...]:
    """What modules with these link, in csrc/module."""
    return ("device/provided.cpp", *(f"device/{name}.cpp" for name in providers)) if providers else ()
