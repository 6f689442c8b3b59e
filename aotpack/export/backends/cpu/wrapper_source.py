"""Turns Inductor's generated wrapper into the wrapper of one of our modules.

Generated text has a fixed shape (torch 2.11 to 2.13): the AOTInductor C interface, declarations of kernels, the model's
constructor with its constants, input checks, and `AOTInductorModel::run_impl`. Only declarations and `run_impl` are
kept: the interface is ours (csrc/module/entry.h), constants come from the manifest, and the runtime checks inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from aotpack.building.native_sources import groups_of
from aotpack.errors import LoweringError
from aotpack.export.backends.cpu.cpp_text import blank_literals, remove_definition

_INTERFACE = re.compile(r"// Definition of AOTI runtime interface functions.*?\n\} // extern \"C\"\n", re.DOTALL)
_CONSTANT = re.compile(r"auto& (\w+) = constants_->at\((\d+)\);")
_KERNEL_CALL = re.compile(r"^\s*(?:AOTI_TORCH_ERROR_CODE_CHECK\()?(cpp_\w+|aoti_torch_cpu_\w+)\(", re.MULTILINE)
_OPS_COMMENT = re.compile(r"// Topologically Sorted Source Nodes: \[.*?\], Original ATen: \[(.*?)\]")
_SHIM = re.compile(r"\b(aoti_torch_\w+)\s*\(")

# Definitions that are dropped, by the beginning of their head.
_DROPPED = (
    r"AOTInductorModel::AOTInductorModel\(",
    r"std::unordered_map<std::string, AtenTensorHandle> AOTInductorModel::const_run_impl\(",
    r"void AOTInductorModel::_const_run_impl\(",
    r"AOTI_NOINLINE static void check_(?:input|output)_\d+\(",
    r"AOTI_NOINLINE static void __check_inputs_outputs\(",
    r"static bool _check_aoti_runtime_check_inputs_env\(\)",
)
_DROPPED_LINES = re.compile(
    r"^\s*(?:__check_inputs_outputs\(.*\);"
    r"|\[\[maybe_unused\]\] auto& kernels = static_cast<AOTInductorModelKernels&>\(.*\);"
    r"|if \(_check_aoti_runtime_check_inputs_env\(\)\) \{.*\}"
    r"|extern /\* aoti_torch_cpu_.*\*/;"
    r"|(?:// )?(?:Compile cmd|Link cmd).*"
    r"|#include <(?:iostream|filesystem)>)\n",
    re.MULTILINE,
)

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
    """A module's wrapper: its text, its constants in order, the shim functions that it calls, its kernels as called."""

    text: str
    constants: tuple[str, ...]
    shims: frozenset[str]
    kernels: tuple[tuple[str, tuple[str, ...]], ...]


def transform(
    generated: str,
    *,
    target: str,
    num_inputs: int,
    num_outputs: int,
    custom: Callable[[frozenset[str]], str] = lambda _: "",
) -> Wrapper:
    """The wrapper of a module for `target`. `custom` defines those C functions that kernels of the user are behind.

    Raises:
        LoweringError: the generated text has another shape than expected.
    """
    text = _INTERFACE.sub("", generated)
    for head in _DROPPED:
        text = remove_definition(text, head)
    text = _DROPPED_LINES.sub("", text)
    if "AOTInductorModel::run_impl(" not in text:
        raise LoweringError("TorchInductor's generated wrapper has no run_impl: is this torch version supported?")
    constants = {int(index): name for name, index in _CONSTANT.findall(text)}
    if sorted(constants) != list(range(len(constants))):
        raise LoweringError("TorchInductor's generated wrapper numbers its constants in an unknown way")
    if DEVICE_HEADER not in text:
        # torch 2.11 leaves it out of a model that computes nothing.
        text = DEVICE_HEADER + "\n" + text
    if re.search(r"\b(?:at|c10)::", text):
        text = _ELEMENT_TYPES + text
    shims = frozenset(_SHIM.findall(blank_literals(text)))
    declared = "".join(f'#include "declare/{group}.h"\n' for group in groups_of(shims))
    declared += custom(shims)
    text = text.replace(DEVICE_HEADER + "\n", DEVICE_HEADER + "\n" + declared, 1)
    text += f'\n#include "entry.h"\nAOTPACK_DEFINE_MODULE("{target}", {num_inputs}, {num_outputs}, {len(constants)})\n'
    return Wrapper(
        text=text,
        constants=tuple(constants[index] for index in range(len(constants))),
        shims=shims,
        kernels=tuple(_kernels(text)),
    )


def _kernels(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Kernels and operators in call order, each with the source operators of the comment above its call."""
    body = text[text.index("AOTInductorModel::run_impl(") :]
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
