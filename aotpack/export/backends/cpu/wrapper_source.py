"""The source of a module around its kernels: headers, the generated function that calls them, the module's interface.

The generated part comes from `aotpack.export.torch_compat.inductor.wrapper`. Constants come from the manifest, and the
runtime checks inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from aotpack.building.native_sources import groups_of
from aotpack.errors import LoweringError
from aotpack.export.backends.cpp_text import blank_literals

_KERNEL_CALL = re.compile(r"^\s*(?:AOTI_TORCH_ERROR_CODE_CHECK\()?(cpp_\w+|aoti_torch_cpu_\w+)\(", re.MULTILINE)
_OPS_COMMENT = re.compile(r"// Topologically Sorted Source Nodes: \[.*?\], Original ATen: \[(.*?)\]")
_SHIM = re.compile(r"\b(aoti_torch_\w+)\s*\(")
_RUN = "AOTInductorModel::run_impl("

# What every wrapper includes.
DEVICE_HEADER = "#include <torch/csrc/inductor/aoti_include/cpu.h>"

# Kernels' declarations name torch's element types.
_ELEMENT_TYPES = """#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e4m3fnuz.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Float8_e5m2fnuz.h>
namespace at { using namespace c10; }
"""


@dataclass(frozen=True)
class Wrapper:
    """A module's wrapper: its text, the shim functions that it calls, its kernels in the order of the calls."""

    text: str
    shims: frozenset[str]
    kernels: tuple[tuple[str, tuple[str, ...]], ...]


def assemble(
    generated: str,
    *,
    target: str,
    num_inputs: int,
    num_outputs: int,
    constants: int,
    custom: Callable[[frozenset[str]], str] = lambda _: "",
) -> Wrapper:
    """The wrapper of a module for `target`.

    Args:
        generated: the C++ of a `ModuleWrapper`.
        target: the name of the target.
        num_inputs: the number of inputs of the module.
        num_outputs: the number of its outputs.
        constants: the number of constants that it reads.
        custom: the definitions of those of the given C functions that call kernels of the user.

    Raises:
        LoweringError: the generated code does not define the function that runs the model.
    """
    if _RUN not in generated:
        raise LoweringError("TorchInductor's generated wrapper has no run_impl: is this torch version supported?")
    shims = frozenset(_SHIM.findall(blank_literals(generated)))
    parts = [
        _ELEMENT_TYPES if re.search(r"\b(?:at|c10)::", generated) else "",
        f"{DEVICE_HEADER}\n",
        *(f'#include "declare/{group}.h"\n' for group in groups_of(shims)),
        custom(shims),
        f"{generated.strip()}\n",
        '\n#include "entry.h"\n',
        f'AOTPACK_DEFINE_MODULE("{target}", {num_inputs}, {num_outputs}, {constants})\n',
    ]
    return Wrapper(text="".join(parts), shims=shims, kernels=tuple(_kernels(generated)))


def _kernels(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Kernels and operators in call order, each with the source operators of the comment above its call."""
    body = text[text.index(_RUN) :]
    calls: list[tuple[str, tuple[str, ...]]] = []
    operators: tuple[str, ...] = ()
    for line in body.splitlines():
        comment = _OPS_COMMENT.search(line)
        if comment is not None:
            operators = tuple(op for op in comment[1].split(", ") if op)
            continue
        call = _KERNEL_CALL.match(line)
        if call is not None:
            calls.append((call[1].removeprefix("aoti_torch_cpu_"), operators))
            operators = ()
    return calls
