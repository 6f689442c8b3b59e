"""The operators' C functions as csrc/module/declare has them, and a driver that can call any of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aotpack.building import operator_declarations

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


@dataclass(frozen=True)
class Function:
    """One C function: the kind and name of each value that it takes, and how many tensors it returns."""

    name: str
    group: str
    kinds: tuple[str, ...]
    names: tuple[str, ...]
    results: int
    lists: frozenset[int]


@lru_cache(maxsize=1)
def functions() -> dict[str, Function]:
    """All of them, by name."""
    return {name: _function(declared) for name, declared in operator_declarations.functions().items()}


def _function(declared: operator_declarations.Function) -> Function:
    # The length comes behind a list.
    lengths = {i + 1 for i, parameter in enumerate(declared.parameters) if parameter.is_list}
    values = [parameter for i, parameter in enumerate(declared.parameters) if i not in lengths]
    return Function(
        declared.name,
        declared.group,
        tuple(_KINDS[parameter.type] for parameter in values),
        tuple(parameter.name for parameter in values),
        len(declared.results),
        frozenset(i for i, parameter in enumerate(values) if parameter.is_list),
    )


def driver_source(names: Iterable[str]) -> str:
    """C++ that calls each of these functions with values from an array (odd.h)."""
    called = [functions()[name] for name in sorted(names)]
    groups = sorted({function.group for function in called})
    lines = [f'#include "declare/{group}.h"' for group in groups]
    lines += [f'#include "{Path(__file__).with_name("odd.h")}"', "", "const std::map<std::string, Call1> kCalls = {"]
    for function in called:
        arguments = [
            f"v.{kind}({i})" + (f", v.length({i})" if i in function.lists else "")
            for i, kind in enumerate(function.kinds)
        ]
        arguments += [f"&r[{i}]" for i in range(function.results)]
        lines.append(f'    {{"{function.name}", [](Values& v, Tensor** r) {{')
        lines.append(f"       (void)r; {function.name}({', '.join(arguments)});")
        lines.append("     }},")
    return "\n".join([*lines, "};", ""])
