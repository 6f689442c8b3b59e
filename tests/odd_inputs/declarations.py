"""The operators' C functions as csrc/module/declare has them, and a driver that can call any of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aotpack.building import native_sources

_FUNCTION = re.compile(r"^void (aoti_torch_\w+)\(([^)]*)\);", re.MULTILINE)

# C type → how the driver hands a value over. Lists take two C parameters.
_KINDS = {
    "AotpackTensor": "tensor",
    "AotpackTensor*": "optional_tensor",
    "const AotpackTensor*": "tensors",
    "const AotpackTensor**": "optional_tensors",
    "int64_t": "int64",
    "int64_t*": "optional_int64",
    "const int64_t*": "ints",
    "const int64_t**": "optional_ints",
    "int32_t": "int32",
    "int32_t*": "optional_int32",
    "const int32_t*": "int32s",
    "double": "real",
    "double*": "optional_real",
    "const double*": "reals",
    "const char*": "text",
    "const char**": "optional_text",
}
_LISTS = ("tensors", "optional_tensors", "ints", "optional_ints", "int32s", "reals")


@dataclass(frozen=True)
class Function:
    """One C function: the kind and name of each value that it takes, and how many tensors it returns."""

    name: str
    group: str
    kinds: tuple[str, ...]
    names: tuple[str, ...]
    results: int


@lru_cache(maxsize=1)
def functions() -> dict[str, Function]:
    """All of them, by name."""
    found = {}
    for header in sorted((native_sources.module_folder() / "declare").glob("*.h")):
        for name, parameters in _FUNCTION.findall(header.read_text()):
            found[name] = _function(name, header.stem, parameters)
    missing = set(native_sources.operator_groups()) - set(found)
    assert not missing, f"declarations that cannot be read: {missing}"
    return found


def _function(name: str, group: str, parameters: str) -> Function:
    kinds: list[str] = []
    names: list[str] = []
    results = 0
    # What has a default value stands for a result that there is none of.
    given = [parameter for parameter in parameters.split(",") if "=" not in parameter]
    rest = [re.fullmatch(r"\s*(.*?)\s*(\w+)\s*", parameter) for parameter in given]
    # Results come last, and have names of their own where they are not ret0, ret1, ...
    numbered = any(match is not None and re.fullmatch(r"ret\d+", match[2]) for match in rest)
    first_result = len(rest)
    while first_result and _is_result(rest[first_result - 1], numbered):
        first_result -= 1
    position = 0
    while position < len(rest):
        match = rest[position]
        assert match is not None, f"{name}: {parameters}"
        kind = match[1].replace(" *", "*")
        if position >= first_result:
            results += 1
        else:
            kinds.append(_KINDS[kind])
            names.append(match[2])
            # The length comes behind a list.
            position += kinds[-1] in _LISTS
        position += 1
    return Function(name, group, tuple(kinds), tuple(names), results)


def _is_result(parameter: re.Match[str] | None, numbered: bool) -> bool:
    if parameter is None or parameter[1].replace(" *", "*") != "AotpackTensor*":
        return False
    return not numbered or re.fullmatch(r"ret\d+", parameter[2]) is not None


def driver_source(names: Iterable[str]) -> str:
    """C++ that calls each of these functions with values from an array (odd.h)."""
    called = [functions()[name] for name in sorted(names)]
    groups = sorted({function.group for function in called})
    lines = [f'#include "declare/{group}.h"' for group in groups]
    lines += [f'#include "{Path(__file__).with_name("odd.h")}"', "", "const std::map<std::string, Call1> kCalls = {"]
    for function in called:
        arguments = [
            f"v.{kind}({i})" + (f", v.length({i})" if kind in _LISTS else "") for i, kind in enumerate(function.kinds)
        ]
        arguments += [f"&r[{i}]" for i in range(function.results)]
        lines.append(f'    {{"{function.name}", [](Values& v, Tensor** r) {{')
        lines.append(f"       (void)r; {function.name}({', '.join(arguments)});")
        lines.append("     }},")
    return "\n".join([*lines, "};", ""])
