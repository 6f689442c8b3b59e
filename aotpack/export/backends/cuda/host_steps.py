"""Operators without a kernel for GPUs: the host code of a module calls those of CPUs on copies in memory of the host.

TorchInductor calls every operator that it generates no kernel for by a C function. Where csrc/module/declare has that
function for CPUs, the module gets one of the device's name that moves tensors and calls it (csrc/module/device/
host_step.h). Where a provider has the operator, that is tried first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from aotpack.building.operator_declarations import Function, functions
from aotpack.export.backends.backend import HostStep
from aotpack.export.backends.cuda.providers import attempt, provider_of, providers_of
from aotpack.export.torch_compat.inductor.fallbacks import Fallback, key

# These read no elements: the function for CPUs works on tensors of devices.
_VIEWS = frozenset(
    ["aoti_torch_cpu_view_as_real", "aoti_torch_cpu_view_as_complex", "aoti_torch_cpu_permute"],
)
_OPERANDS = {
    "AotpackTensor": "operand",
    "AotpackTensor*": "optional",
    "const AotpackTensor*": "operands",
    "const AotpackTensor**": "optional_operands",
}


def host_functions(shims: Iterable[str]) -> dict[str, Function]:
    """Those of the C functions `shims` that the host can compute, each with the function for CPUs."""
    known = functions()
    found = {shim: known.get(shim.replace("aoti_torch_cuda_", "aoti_torch_cpu_", 1)) for shim in sorted(set(shims))}
    return {shim: function for shim, function in found.items() if function is not None}


def definitions(found: Mapping[str, Function], providers: Collection[str] = ()) -> str:
    """C++ that defines `found`, functions of generated code by their names there, by means of `providers` and of those
    for CPUs.
    """
    if not found:
        return ""
    groups = sorted({function.group for function in found.values()})
    return "\n".join(
        [
            '#include "device/host_step.h"',
            *(f'#include "declare/{group}.h"' for group in groups),
            *(f'#include "device/{provider}.h"' for provider in providers_of(found.values(), providers)),
            "namespace torch::aot_inductor {",
            *(_definition(shim, function, provider_of(function, providers)) for shim, function in found.items()),
            "}",
            "",
        ]
    )


def steps(
    calls: Sequence[Fallback], found: Mapping[str, Function], providers: Collection[str] = ()
) -> tuple[HostStep, ...]:
    """What runs on the host, in order, but for views."""
    by_key = {key(shim): function for shim, function in found.items() if function.name not in _VIEWS}
    return tuple(
        HostStep(
            call.operator,
            call.module,
            call.line.full if call.line else "",
            call.nbytes,
            next((name for known in sorted(here) if (name := provider_of(by_key[known], providers))), ""),
        )
        for call in calls
        if (here := call.keys & by_key.keys())
    )


def _definition(shim: str, function: Function, provider: str) -> str:
    parameters = (*function.parameters, *function.results, *function.placeholders)
    head = f"inline void {shim}({', '.join(map(str, parameters))}) {{"
    if function.name in _VIEWS:
        return f"{head} ::{function.name}({', '.join(parameter.name for parameter in parameters)}); }}"
    given = [
        *(_argument(function, index) for index in range(len(function.parameters))),
        *(f"step.result({result.name})" for result in function.results),
        *(placeholder.name for placeholder in function.placeholders),
    ]
    first = ""
    if provider:
        arguments = ", ".join(parameter.name for parameter in (*function.parameters, *function.results))
        first = f"  if ({attempt(function, provider)}({arguments})) return;\n"
    return (
        f"{head}\n{first}  aotpack::module::HostStep step;\n  ::{function.name}({', '.join(given)});\n"
        "  step.finish();\n}"
    )


def _argument(function: Function, index: int) -> str:
    parameter = function.parameters[index]
    how = _OPERANDS.get(parameter.type)
    if how is None:
        return parameter.name
    # Of a function with results, it is what the forward of the operator returned.
    if parameter.name == "out" and not function.results:
        return "step.written(out)"
    length = f", {function.parameters[index + 1].name}" if parameter.is_list else ""
    return f"step.{how}({parameter.name}{length})"
