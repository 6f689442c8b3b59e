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
from aotpack.export.backends.cpu import wrapper_words
from aotpack.export.backends.cpu.calls import Calls, read_calls

_SHIM = re.compile(r"\b(aoti_torch_\w+)\s*\(")
_RUN = "AOTInductorModel::run_impl("

# What wrappers include that need more than aotpack's own header has.
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
    """A module's wrapper: its text, the shim functions that it calls, its calls of kernels."""

    text: str
    shims: frozenset[str]
    calls: Calls


def assemble(
    generated: str,
    *,
    target: str,
    num_inputs: int,
    num_outputs: int,
    constants: int,
    custom: Callable[[frozenset[str]], str] = lambda _: "",
    hooks: bool = False,
) -> Wrapper:
    """The wrapper of a module for `target`.

    Args:
        generated: the C++ of a `ModuleWrapper`.
        target: the name of the target.
        num_inputs: the number of inputs of the module.
        num_outputs: the number of its outputs.
        constants: the number of constants that it reads.
        custom: the definitions of those of the given C functions that call kernels of the user.
        hooks: whether it tells the runtime when each kernel begins and ends.

    Raises:
        LoweringError: the generated code does not define the function that runs the model.
    """
    if _RUN not in generated:
        raise LoweringError("TorchInductor's generated wrapper has no run_impl: is this torch version supported?")
    calls = read_calls(generated, _RUN, hooks=hooks, arena=True)
    generated = calls.text
    shims = frozenset(_SHIM.findall(blank_literals(generated)))
    define = "AOTPACK_DEFINE_PROFILED_MODULE" if hooks else "AOTPACK_DEFINE_MODULE"
    glue = custom(shims)
    own = not glue and not hooks and wrapper_words.has_own_words(generated)
    parts = [
        _ELEMENT_TYPES if re.search(r"\b(?:at|c10)::", generated) else "",
        f"{wrapper_words.OWN if own else DEVICE_HEADER}\n",
        '#include "profile.h"\n' if hooks else "",
        *(f'#include "declare/{group}.h"\n' for group in groups_of(shims)),
        glue,
        f"{wrapper_words.with_own_names(generated.strip()) if own else generated.strip()}\n",
        "\n" if own else '\n#include "entry.h"\n',
        f'{define}("{target}", {num_inputs}, {num_outputs}, {constants})\n',
    ]
    return Wrapper(text="".join(parts), shims=shims, calls=calls)
