"""Lowering: a Program becomes the C++ of a module's host code, and compiled kernels for its GPU."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import torch

from aotpack.building import native_sources
from aotpack.errors import LoweringError
from aotpack.export.backends.backend import LoweredConstant, LoweredModule
from aotpack.export.backends.check_wording import wording
from aotpack.export.backends.cpp_text import blank_literals
from aotpack.export.backends.cpu.kernel_source import translation_units
from aotpack.export.backends.cuda import host_steps
from aotpack.export.backends.cuda.retarget import on_device
from aotpack.export.backends.cuda.wrapper_source import assemble
from aotpack.export.backends.halves import used_halves
from aotpack.export.backends.unsupported_operators import refuse, uses_of
from aotpack.export.ir import regions
from aotpack.export.ir.program import ConstantInfo, Program
from aotpack.export.passes.runner import refuse_specialization
from aotpack.export.probing.lowering_guards import lowering_checks
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.torch_compat.inductor.codegen import GeneratedCode
from aotpack.export.torch_compat.inductor.cuda.codegen import generate_cuda
from aotpack.export.torch_compat.inductor.cuda.device import fake_gpu
from aotpack.export.torch_compat.inductor.cuda.kernels import CudaKernel
from aotpack.export.torch_compat.older_torch import keeps_launches_inside
from aotpack.targets import BY_NAME, GpuInfo

# Characters of a source of kernels for the host: all of a model's, but for extremes.
_UNIT_SIZE = 60_000


@dataclass(frozen=True, kw_only=True)
class LoweredCuda(LoweredModule):
    """A module for a GPU before its host code is compiled.

    Attributes:
        wrapper: the host code.
        device_code: the compiled kernels.
        host_shims: the functions for CPUs that it calls.
        host_kernels: sources of the kernels that compute single numbers on the host.
        tensor_maps: whether kernels take descriptions of matrices.
        halves: which of "bf16" and "f16" the model computes with.
    """

    wrapper: str
    device_code: tuple[CudaKernel, ...]
    host_shims: frozenset[str]
    host_kernels: tuple[str, ...]
    halves: frozenset[str]
    tensor_maps: bool


def lower(
    program: Program,
    target: str,
    *,
    weights_known: bool = True,
    shared: bool = False,
    providers: Collection[str] = (),
) -> LoweredCuda:
    """Generates the host code of the module for `target`, and compiles its kernels. It calls `providers`, where the
    host has them, for operators that otherwise run there, and in place of kernels.

    Numbers that control flow depends on become part of the code where the host computes with them: those among the
    weights if `weights_known`, and none if the module is `shared` by programs with other constants.

    Raises:
        UnsupportedOperatorError: the model needs operators that have no kernel; all of them are listed.
        LoweringError: code generation failed, or this version of torch loses parts of branches and loops.
    """
    gpu = _gpu(target)
    if not keeps_launches_inside() and any(map(regions.calls_graphs, program.graph.nodes)):
        raise LoweringError(
            f"branches and loops in modules for GPUs need torch 2.13; this is {torch.__version__}, which loses kernels "
            "in them",
            hint="build with torch 2.13, or for CPUs only",
        )
    with shape_env.sizes_from_zero(), shape_env.usual_sizes(), shape_env.lines_of_the_model(), fake_gpu(gpu):
        graph, values, attributes = on_device(program, weights_known=weights_known, shared=shared)
        num_inputs = len(program.signature.inputs)
        code = generate_cuda(graph, values, num_inputs, wording=wording(program), providers=providers)
    refuse_specialization(program, "TorchInductor")
    checks = lowering_checks(program, "TorchInductor")
    kernels: tuple[CudaKernel, ...] = tuple(code.kernels)
    constants = (
        *(_attribute(program, name, value) for name, value in zip(attributes, values[num_inputs:], strict=True)),
        *(_literal(name, value) for name, value in code.constants.items()),
    )
    shims = frozenset(_SHIM.findall(blank_literals(code.wrapper)))
    on_host = host_steps.host_functions(shims - supported_shims())
    _refuse_unsupported(code, shims - on_host.keys())
    wrapper = assemble(
        code.wrapper,
        kernels,
        on_host,
        providers=providers,
        portable=gpu.portable,
        target=target,
        num_inputs=num_inputs,
        num_outputs=len(program.signature.outputs),
        constants=len(constants),
    )
    host_kernels = tuple(translation_units(code.host_kernels, _UNIT_SIZE))
    return LoweredCuda(
        target=target,
        sources=(wrapper.text, *host_kernels, *(kernel.ptx for kernel in kernels)),
        wrapper=wrapper.text,
        constants=constants,
        kernels=wrapper.kernels,
        checks=checks,
        device_code=kernels,
        host_kernels=host_kernels,
        host_shims=frozenset(function.name for function in on_host.values()),
        halves=used_halves(program),
        host_steps=host_steps.steps(code.operators, on_host, providers),
        providers=wrapper.providers,
        tf32=any(kernel.tf32 for kernel in kernels),
        tensor_maps=wrapper.tensor_maps,
        choices=tuple(f"{kernel.entry} for {target}: {kernel.choice}" for kernel in kernels if kernel.choice),
    )


def _gpu(target: str) -> GpuInfo:
    gpu = BY_NAME[target].gpu
    if gpu is None:
        raise LoweringError(f"{target!r} is no target for GPUs")
    return gpu


def _attribute(program: Program, name: str, seen: torch.Tensor) -> LoweredConstant:
    return LoweredConstant(name, program.constant_info(name), seen.dtype, tuple(seen.shape), seen.stride())


def _literal(name: str, value: torch.Tensor) -> LoweredConstant:
    value = value.detach()
    info = ConstantInfo("constant", ())
    return LoweredConstant(name, info, value.dtype, tuple(value.shape), value.stride(), value)


@lru_cache(maxsize=1)
def supported_shims() -> frozenset[str]:
    """The functions that a module for a device answers, read from their declarations."""
    module = native_sources.module_folder()
    shared = [path for path in sorted((module / "shim").glob("*.h")) if path.name != "host_data.h"]
    text = "".join(path.read_text() for path in [*shared, module / "device" / "shim.h"])
    names = set(re.findall(r"\b(aoti_torch_\w+)\(", text))
    for macro in ("item", "scalar_to_tensor"):
        names |= {f"aoti_torch_{macro}_{dtype}" for dtype in re.findall(r"AOTPACK_ITEM\((\w+),", text)}
    return frozenset(names)


# What a call through the dispatcher is made of; the operator itself is in `dispatcher_calls`.
_DISPATCHER = frozenset(["aoti_torch_new_uninitialized_tensor", "aoti_torch_proxy_executor_call_function"])
_SHIM = re.compile(r"\b(aoti_torch_\w+)\s*\(")


def _refuse_unsupported(code: GeneratedCode, shims: frozenset[str]) -> None:
    missing = shims - supported_shims() - _DISPATCHER
    dispatched = list(code.dispatcher_calls)
    if not missing and not dispatched and shims & _DISPATCHER:
        dispatched = ["an operator without a name in TorchInductor"]
    refuse(uses_of(code.operators, missing, dispatched))
