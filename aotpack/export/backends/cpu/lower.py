"""Lowering: a Program becomes C++ sources for one target, and the constants that they read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch

from aotpack.building import native_sources
from aotpack.export import ops
from aotpack.export.backends.backend import LoweredConstant, LoweredModule
from aotpack.export.backends.check_wording import wording
from aotpack.export.backends.cpu import custom_glue, kernel_source, wrapper_source
from aotpack.export.backends.cpu.custom_glue import Glue
from aotpack.export.backends.cpu.score_source import score_source
from aotpack.export.backends.halves import used_halves
from aotpack.export.backends.unsupported_operators import refuse, uses_of
from aotpack.export.custom_ops.kernels import operators_with_kernels
from aotpack.export.custom_ops.triton_launches import user_name
from aotpack.export.ir import regions
from aotpack.export.ir.program import ConstantInfo, Program, get_attribute, set_attribute
from aotpack.export.ir.rewriter import is_dense
from aotpack.export.passes.runner import refuse_specialization
from aotpack.export.probing.lowering_guards import lowering_checks
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.torch_compat.graphs import module_over
from aotpack.export.torch_compat.inductor.codegen import GeneratedCode, generate
from aotpack.export.torch_compat.operators import OpOverload
from aotpack.targets import BY_NAME

# Characters of kernel source that one compiler process gets; about two seconds of work, as long as it reads headers.
_UNIT_SIZE = 120_000
_PLAIN = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)
# What csrc/module/generated is written for.
_OWN_HEADERS = ("AVX2", "AVX512")


@dataclass(frozen=True, kw_only=True)
class Lowered(LoweredModule):
    """Sources of a module for a CPU: `wrapper`, then `units` of kernels, which are compiled side by side.

    Attributes:
        shims: the functions of csrc/module that it calls.
        functions: the source of score functions, "" if there are none.
        halves: which of "bf16" and "f16" it computes with.
        custom: operators with kernels of the user.
    """

    wrapper: str
    units: tuple[str, ...]
    shims: frozenset[str]
    halves: frozenset[str]
    functions: str = ""
    custom: tuple[Glue, ...] = ()


def lower(
    program: Program,
    target: str,
    *,
    weights_known: bool = True,
    hooks: bool = False,
    ahead: Callable[[str], None] = lambda _: None,
) -> Lowered:
    """Generates the sources of the module for `target`.

    `weights_known` allows the code to be made for the values of weights: for single numbers, which become literals.
    `hooks`: the module tells the runtime when each kernel begins and ends. `ahead` is called with each source of
    kernels that is complete while others are still generated.

    Raises:
        UnsupportedOperatorError: the model needs operators that have no kernel; all of them are listed.
        LoweringError: code generation failed.
    """
    inputs = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
    custom = operators_with_kernels()
    called: list[Glue] = []

    def define(shims: frozenset[str]) -> str:
        called.extend(custom_glue.of_shims(custom, shims))
        return custom_glue.wrapper_text(called)

    fold = weights_known and not _has_state_of_one_element(program)
    own_headers = has_own_headers(target)
    early = kernel_source.TranslationUnits(_UNIT_SIZE, own_headers=own_headers, finished=ahead)
    with shape_env.sizes_from_zero(), shape_env.usual_sizes(), shape_env.lines_of_the_model():
        code = generate(
            _with_room(program, values=fold),
            inputs,
            target,
            fold=fold,
            wording=wording(program),
            custom={op: custom_glue.shim_name(op) for op in custom},
            defined=early.add,
        )
    refuse_specialization(program, "TorchInductor")
    checks = lowering_checks(program, "TorchInductor")
    wrapper = wrapper_source.assemble(
        code.wrapper,
        constants=len(code.constants),
        target=target,
        num_inputs=len(program.signature.inputs),
        num_outputs=len(program.signature.outputs),
        custom=define,
        hooks=hooks,
    )
    _refuse_unsupported(code, wrapper.shims - {each.shim_name for each in called})
    functions = score_source(program.graph_module)
    units = tuple(kernel_source.translation_units(code.kernels, _UNIT_SIZE, own_headers=own_headers))
    return Lowered(
        target=target,
        sources=(wrapper.text, *units, *([functions] if functions else [])),
        wrapper=wrapper.text,
        units=units,
        functions=functions,
        shims=wrapper.shims,
        constants=tuple(_constant(program, code, name) for name in code.constants),
        kernels=wrapper.calls.kernels,
        blocks=wrapper.calls.blocks,
        hooks=hooks,
        halves=used_halves(program),
        checks=checks,
        custom=tuple(called),
    )


def _has_state_of_one_element(program: Program) -> bool:
    """Whether there is a counter or the like: TorchInductor would compute with its first value in every call."""
    nodes = regions.constants(program.graph_module)
    return any(program.constant_info(str(n.target)).mutated and n.meta["val"].numel() <= 1 for n in nodes)


def _with_room(program: Program, *, values: bool) -> torch.fx.GraphModule:
    """The graph over dense tensors on the CPU, as the archive will hold them.

    Values that do not exist yet are not read: memory that is never touched takes no room. Single numbers have their
    values, if `values`, because TorchInductor computes with them.
    """
    module = module_over(program.graph_module, program.graph)
    for node in regions.constants(module):
        attribute = str(node.target)
        value = get_attribute(module, attribute)
        mutated = program.constant_info(attribute).mutated
        # TorchInductor copies buffers, but not parameters; what is written to must be a buffer.
        if not value.is_meta and is_dense(value) and isinstance(value, torch.nn.Parameter) != mutated:
            # In the order of the graph, as the others: the code is the same for weights that are not in memory.
            set_attribute(module, attribute, value)
            continue
        if value.numel() <= 1 and values:
            room = program.value(attribute).clone()
        elif is_dense(value):
            room = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        else:
            room = torch.empty(value.shape, dtype=value.dtype)
        set_attribute(module, attribute, room if mutated else torch.nn.Parameter(room, requires_grad=False))
    return module


def _constant(program: Program, code: GeneratedCode, name: str) -> LoweredConstant:
    attribute = code.constant_origins.get(name, name)
    seen = code.constants[name].detach()
    layout = (seen.dtype, tuple(seen.shape), seen.stride())
    try:
        return LoweredConstant(attribute, program.constant_info(attribute), *layout)
    except (AttributeError, TypeError):
        # Made by Inductor itself, e.g. out of a literal in the model.
        return LoweredConstant(attribute, ConstantInfo("constant", ()), *layout, seen)


def has_own_headers(target: str) -> bool:
    """Whether code for `target` includes aotpack's own headers where they have all that it needs."""
    return BY_NAME[target].torch_capability in _OWN_HEADERS


def is_plain(program: Program) -> bool:
    """Whether the code of a program is likely to need no more than aotpack's own headers have: see kernel_words.py and
    wrapper_words.py.
    """
    nodes = list(regions.all_nodes(program.graph_module))
    values = [node.meta.get("val") for node in nodes]
    leaves = [leaf for value in values for leaf in (value if isinstance(value, (tuple, list)) else [value])]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return (
        not any(regions.calls_graphs(node) for node in nodes)
        and all(leaf is None or isinstance(leaf, torch.Tensor) for leaf in leaves)
        and all(tensor.dtype in _PLAIN and all(type(size) is int for size in tensor.shape) for tensor in tensors)
    )


def kernel_shims(program: Program) -> frozenset[str]:
    """The functions that our own operators in the graph will call; known before code is generated."""
    return frozenset(
        ops.C_SHIMS[node.target]
        for node in regions.all_nodes(program.graph_module)
        if isinstance(node.target, OpOverload) and node.target in ops.C_SHIMS
    )


@lru_cache(maxsize=1)
def supported_shims() -> frozenset[str]:
    """The functions that a module answers, read from their declarations."""
    headers = sorted((native_sources.module_folder() / "shim").glob("*.h"))
    text = "".join(header.read_text() for header in headers)
    names = {*re.findall(r"\b(aoti_torch_\w+)\(", text), *native_sources.operator_groups()}
    for macro in ("item", "scalar_to_tensor"):
        names |= {f"aoti_torch_{macro}_{dtype}" for dtype in re.findall(r"AOTPACK_ITEM\((\w+),", text)}
    return frozenset(names)


# What a call through the dispatcher is made of; the operator itself is in `dispatcher_calls`.
_DISPATCHER = frozenset(["aoti_torch_new_uninitialized_tensor", "aoti_torch_proxy_executor_call_function"])


def _refuse_unsupported(code: GeneratedCode, shims: frozenset[str]) -> None:
    missing = shims - supported_shims() - _DISPATCHER
    dispatched = list(code.dispatcher_calls)
    if not missing and not dispatched and shims & _DISPATCHER:
        dispatched = ["an operator without a name in TorchInductor"]
    uses = uses_of(code.operators, missing, dispatched)
    refuse([use._replace(operator=user_name(use.operator)) for use in uses])
