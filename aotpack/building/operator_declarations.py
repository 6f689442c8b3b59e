"""The operators' C functions as csrc/module/declare has them: parameters, and which of them are results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from aotpack.building import native_sources

_FUNCTION = re.compile(r"^void (aoti_torch_\w+)\(([^)]*)\);", re.MULTILINE)
_PARAMETER = re.compile(r"\s*(.*?)\s*(\w+)\s*(?:=\s*(\w+)\s*)?")
# C types of lists; their length is the next parameter.
_LISTS = frozenset(
    f"const {element}"
    for element in ("AotpackTensor*", "AotpackTensor**", "int64_t*", "int64_t**", "int32_t*", "double*")
)


@dataclass(frozen=True)
class Parameter:
    """One parameter: its C type, without a space in front of `*`, its name, and its default value if it has one."""

    type: str
    name: str
    default: str | None = None

    @property
    def is_list(self) -> bool:
        """Whether the next parameter is its length."""
        return self.type in _LISTS

    def __str__(self) -> str:
        return f"{self.type} {self.name}" + (f" = {self.default}" if self.default is not None else "")


@dataclass(frozen=True)
class Function:
    """One C function.

    Attributes:
        name: as generated code calls it.
        group: module/declare/<group>.h declares it.
        parameters: without the results.
        results: of type `AotpackTensor*`, behind the parameters.
        placeholders: parameters with a default value, behind all others; they stand for results that there are none of.
    """

    name: str
    group: str
    parameters: tuple[Parameter, ...]
    results: tuple[Parameter, ...]
    placeholders: tuple[Parameter, ...] = ()


@lru_cache(maxsize=1)
def functions() -> dict[str, Function]:
    """All of them, by name.

    Raises:
        ValueError: a declaration cannot be read.
    """
    found = {}
    for header in sorted((native_sources.module_folder() / "declare").glob("*.h")):
        for name, parameters in _FUNCTION.findall(header.read_text()):
            found[name] = _function(name, header.stem, parameters)
    missing = set(native_sources.operator_groups()) - set(found)
    if missing:
        raise ValueError(f"declarations that cannot be read: {sorted(missing)}")
    return found


def _function(name: str, group: str, text: str) -> Function:
    parameters = [_parameter(part) for part in text.split(",")]
    given = [parameter for parameter in parameters if parameter.default is None]
    placeholders = tuple(parameter for parameter in parameters if parameter.default is not None)
    # Results come last, and have names of their own where they are not ret0, ret1, ...
    numbered = any(re.fullmatch(r"ret\d+", parameter.name) for parameter in given)
    first = len(given)
    while first and _is_result(given[first - 1], numbered=numbered):
        first -= 1
    return Function(name, group, tuple(given[:first]), tuple(given[first:]), placeholders)


def _parameter(text: str) -> Parameter:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        raise ValueError(f"a parameter that cannot be read: {text!r}")
    return Parameter(match[1].replace(" *", "*"), match[2], match[3])


def _is_result(parameter: Parameter, *, numbered: bool) -> bool:
    if parameter.type != "AotpackTensor*":
        return False
    return not numbered or re.fullmatch(r"ret\d+", parameter.name) is not None
