"""The source of a module's host code: headers, its kernels by name, the generated function, the module's interface."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from aotpack.building.operator_declarations import Function
from aotpack.errors import LoweringError
from aotpack.export.backends.backend import KernelCall
from aotpack.export.backends.cuda.host_steps import definitions
from aotpack.export.backends.cuda.providers import OF_KERNELS, ordered, provider_of, providers_of
from aotpack.export.torch_compat.inductor.cuda.kernels import DESCRIPTOR, CudaKernel
from aotpack.export.torch_compat.inductor.fallbacks import key

_OPS_COMMENT = re.compile(r"// Topologically Sorted Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]")
_CALL = re.compile(r"^\s*(?:call_|(?=cpp_fused_)|(?:AOTI_TORCH_ERROR_CODE_CHECK\()?(?=aoti_torch_))(\w+)\(")
_RUN = "AOTInductorModel::run_impl("

# What all host code includes first.
DEVICE_HEADER = '#include "device/shim.h"'


@dataclass(frozen=True)
class Wrapper:
    """The host code, and its kernels and host steps in the order of the calls.

    Attributes:
        tensor_maps: whether kernels take descriptions of matrices.
        providers: the libraries that it calls.
    """

    text: str
    kernels: tuple[KernelCall, ...]
    tensor_maps: bool
    providers: tuple[str, ...]


def asset_names(kernels: Sequence[CudaKernel], *, portable: bool) -> list[str]:
    """The assets of a module with these kernels, in order: cubins, each with its PTX where newer GPUs compile that."""
    extensions = ("cubin", "ptx") if portable else ("cubin",)
    return [f"{kernel.name}.{extension}" for kernel in kernels for extension in extensions]


def assemble(
    generated: str,
    kernels: Sequence[CudaKernel],
    on_host: Mapping[str, Function],
    *,
    providers: Collection[str] = (),
    portable: bool,
    target: str,
    num_inputs: int,
    num_outputs: int,
    constants: int,
) -> Wrapper:
    """The host code of a module for `target`.

    Args:
        generated: the C++ of a `CudaModuleWrapper`.
        kernels: its kernels.
        on_host: its functions that run on the host, as `host_functions` has them.
        providers: libraries to call in their place where the host has them. Kernels say which of them they have.
        portable: whether the module carries the PTX of its kernels.
        target: the name of the target.
        num_inputs: the number of inputs of the module.
        num_outputs: the number of its outputs.
        constants: the number of constants that it reads.

    Raises:
        LoweringError: the generated code does not define the function that runs the model.
    """
    if _RUN not in generated:
        raise LoweringError("TorchInductor's generated wrapper has no run_impl: is this torch version supported?")
    names = asset_names(kernels, portable=portable)
    listed = ", ".join([*(f'"{name}"' for name in names), "nullptr"])
    features = "AOTPACK_MODULE_FEATURE_ASYNC" + (" | AOTPACK_MODULE_FEATURE_HOST_STEPS" if on_host else "")
    tensor_maps = DESCRIPTOR in generated
    used = ordered({*providers_of(on_host.values(), providers), *(kernel.provider for kernel in kernels)})
    parts = [
        f"{DEVICE_HEADER}\n",
        *(f'#include "device/{provider}.h"\n' for provider in used if provider in OF_KERNELS),
        *(
            f"static constexpr aotpack::module::Kernel aotpack_kernel_{kernel.name}"
            f'{{{names.index(f"{kernel.name}.cubin")}, "{kernel.entry}", {_flags(kernel)}}};\n'
            for kernel in kernels
        ),
        definitions(on_host, providers),
        f"{generated.strip()}\n",
        "\n#define AOTPACK_MODULE_HAS_TENSOR_MAPS\n" if tensor_maps or used else "\n",
        "#define AOTPACK_MODULE_HAS_PROVIDERS\n" if used else "",
        '#include "device/entry.h"\n',
        f"static const char* const aotpack_assets[] = {{{listed}}};\n",
        f'AOTPACK_DEFINE_DEVICE_MODULE("{target}", {num_inputs}, {num_outputs}, {constants}, {features}, '
        "aotpack_assets)\n",
    ]
    return Wrapper("".join(parts), tuple(_calls(generated, kernels, on_host, providers)), tensor_maps, used)


def _flags(kernel: CudaKernel) -> str:
    return "AOTPACK_LAUNCH_WAITS" if kernel.waits else "0"


def _calls(
    text: str, kernels: Sequence[CudaKernel], on_host: Mapping[str, Function], providers: Collection[str]
) -> list[KernelCall]:
    """Kernels and what runs on the host in call order, each with what the comment above its call says."""
    provider_of_kernel = {kernel.name: kernel.provider for kernel in kernels}
    calls: list[KernelCall] = []
    operators: tuple[str, ...] = ()
    nodes: tuple[tuple[str, str], ...] = ()
    for line in text[text.index(_RUN) :].splitlines():
        comment = _OPS_COMMENT.search(line)
        if comment is not None:
            nodes = tuple(("", node) for node in comment[1].split(", ") if node)
            operators = tuple(op for op in comment[2].split(", ") if op)
            continue
        call = _CALL.match(line)
        if call is None or (call[1].startswith("aoti_torch_") and call[1] not in on_host):
            continue
        name = key(call[1]) if call[1] in on_host else call[1]
        where = " on the host" if call[1] in on_host or name.startswith("cpp_") else ""
        provider = provider_of(on_host[call[1]], providers) if call[1] in on_host else ""
        if provider:
            where = f" by {provider}, or on the host"
        elif provider_of_kernel.get(name):
            where = f", or {provider_of_kernel[name]}"
        calls.append(KernelCall(f"{name}{where}", operators, nodes))
        operators, nodes = (), ()
    return calls
