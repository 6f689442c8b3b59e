"""Runs TorchInductor's code generation on a flat graph and takes the sources out before anything is compiled.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.compile_fx.compile_fx_aot
  torch._inductor.codecache.AotCodeCompiler.compile   replaced while generating: it receives the finished sources
  torch._inductor.cpu_vec_isa.{VecAVX2, VecAVX512, VecNEON, valid_vec_isa_list}   the ISA is chosen by us, not probed
  torch._inductor.cpu_vec_isa.{VecSVE, VecSVE256}   the same; torch 2.11 has the second name
  torch._inductor.codegen.cpp.CppKernel.decide_parallel_depth
  torch._inductor.graph.GraphLowering.{constants, allocated_constant_name}
  torch._guards.{TracingContext, tracing}
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from aotpack.errors import AotpackError, LoweringError
from aotpack.export import ops
from aotpack.export.custom_ops.by_device import functions_for_cpus
from aotpack.export.decompositions import our_decompositions
from aotpack.export.diagnostics.internal_errors import REPORT, place_of, summary
from aotpack.export.ir.rewriter import fake_mode
from aotpack.export.torch_compat.effects import checks_without_tokens
from aotpack.export.torch_compat.inductor.annotations import kernels_annotated
from aotpack.export.torch_compat.inductor.asserts import Wording, worded_asserts
from aotpack.export.torch_compat.inductor.carried import carried_values_updated_in_place
from aotpack.export.torch_compat.inductor.complex_graph import simplify_complex
from aotpack.export.torch_compat.inductor.copies import copies_of_state_kept
from aotpack.export.torch_compat.inductor.custom_calls import custom_calls
from aotpack.export.torch_compat.inductor.device_asserts import asserts_checked
from aotpack.export.torch_compat.inductor.discarded_kernels import without_discarded_kernels
from aotpack.export.torch_compat.inductor.fallbacks import Fallback, fallbacks
from aotpack.export.torch_compat.inductor.functional_graphs import functional_graphs_kept
from aotpack.export.torch_compat.inductor.functions import accurate_functions
from aotpack.export.torch_compat.inductor.layout import chosen_layouts
from aotpack.export.torch_compat.inductor.loading import load_lowerings
from aotpack.export.torch_compat.inductor.loop_constants import loops_without_constants
from aotpack.export.torch_compat.inductor.loop_results import loop_results_reused_once
from aotpack.export.torch_compat.inductor.numbers import numbers_allowed
from aotpack.export.torch_compat.inductor.private_cache import private_cache
from aotpack.export.torch_compat.inductor.rare_dtypes import rare_dtypes_allowed
from aotpack.export.torch_compat.inductor.shims import shims_of_later_versions
from aotpack.export.torch_compat.inductor.short_cuts import short_cuts
from aotpack.export.torch_compat.inductor.sizes import open_sizes
from aotpack.export.torch_compat.library import decomposed_by
from aotpack.export.torch_compat.onednn import without_onednn
from aotpack.export.torch_compat.patches import replaced
from aotpack.targets import BY_NAME, TABLE

# Loops are divided as for this many threads, whatever the build host has: a build must not depend on its host.
_ASSUMED_THREADS = 8
# A parallel region costs about as much as a few thousand elements of pointwise work.
_MIN_CHUNK = 4096


@dataclass
class GeneratedCode:
    """What code generation produced for one graph and one target.

    Attributes:
        wrapper: C++ declarations of the kernels and the function that calls them.
        kernels: what the generator of the wrapper has recorded of each kernel; for CPUs the C++ source.
        constants: the tensors that the wrapper reads, in the order in which it numbers them.
        constant_origins: by name of a constant, the attribute of the graph that it was.
        dispatcher_calls: operators without a C function.
        operators: the operators that are called.
        host_kernels: of a program for a GPU, the C++ of kernels that compute single numbers on the host.
    """

    wrapper: str
    kernels: list[Any]
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    constant_origins: dict[str, str] = field(default_factory=dict)
    dispatcher_calls: list[str] = field(default_factory=list)
    operators: list[Fallback] = field(default_factory=list)
    host_kernels: list[str] = field(default_factory=list)


def supported_targets() -> tuple[str, ...]:
    """Targets that code can be generated for."""
    return tuple(info.name for info in TABLE if info.vector_isa is not None)


def settings_everywhere() -> dict[str, Any]:
    """Settings of torch._inductor.config that are the same for all devices."""
    return {
        "cpp_wrapper": True,
        "force_disable_caches": True,
        "compile_threads": 1,
        # Constants were settled by our own passes.
        "freezing": False,
        # Else constants of a few elements become literals, state that the model writes to among them.
        "always_keep_tensor_constants": True,
        "layout_optimization": False,
        "size_asserts": False,
        "alignment_asserts": False,
        "nan_asserts": False,
        "scalar_asserts": True,
        "aot_inductor.package": False,
        "aot_inductor.use_runtime_constant_folding": False,
        "aot_inductor.output_path": "",
        "allow_buffer_reuse": True,
        "keep_output_stride": True,
        "fallback_random": False,
        "max_autotune": False,
        "comprehensive_padding": False,
        "post_grad_custom_pre_pass": simplify_complex,
    }


def _config(bits: int, *, fold: bool, custom: Mapping[torch._ops.OpOverload, str] | None = None) -> dict[str, Any]:
    # Operators with C functions. The declarations that TorchInductor asks for are not used, see wrapper.py.
    shims = {op: [name] for op, name in {**ops.C_SHIMS, **(custom or {})}.items()}
    return {
        **settings_everywhere(),
        # Reads the values of constants of one element.
        "joint_graph_constant_folding": fold,
        "cpp.weight_prepack": False,
        "cpp.vec_isa_ok": True,
        "cpp.simdlen": bits,
        "cpp.threads": _ASSUMED_THREADS,
        "cpp.dynamic_threads": True,
        "cpp.min_chunk_size": _MIN_CHUNK,
        "cpp.enable_kernel_profile": False,
        "aot_inductor.custom_ops_to_c_shims": shims,
    }


def _vector_isa(target: str) -> tuple[str, int]:
    found = BY_NAME[target].vector_isa
    if found is None:
        raise ValueError(f"TorchInductor has no instruction set for the target {target!r}")
    return found


@contextlib.contextmanager
def _fixed_isa(target: str) -> Iterator[int]:
    from torch._inductor import cpu_vec_isa

    name, bits = _vector_isa(target)
    if not hasattr(cpu_vec_isa, name):
        name += str(bits)
    # Taken to be there: for AVX-512 torch otherwise compiles and loads a library to see what this host has besides.
    isas = [type(name, (getattr(cpu_vec_isa, name),), {"__bool__": lambda _: True})()] if bits else []
    with replaced(cpu_vec_isa, "valid_vec_isa_list", lambda: isas):
        yield bits


@contextlib.contextmanager
def _serial_when_small() -> Iterator[None]:
    """`dynamic_threads` makes Inductor open a parallel region around every loop; small loops stay serial here."""
    from torch._inductor import config
    from torch._inductor.codegen.cpp import CppKernel

    original: Any = CppKernel.decide_parallel_depth

    @functools.wraps(original)
    def decide(self: Any, max_parallel_depth: Any, threads: int) -> Any:
        with config.patch({"cpp.dynamic_threads": False}):
            return original(self, max_parallel_depth, threads)

    with replaced(CppKernel, "decide_parallel_depth", decide):
        yield


def _module_wrappers(defined: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
    # Here, because it loads TorchInductor.
    from aotpack.export.torch_compat.inductor.wrapper import module_wrappers

    return module_wrappers(defined)


@contextlib.contextmanager
def _intercepted(result: list[GeneratedCode]) -> Iterator[None]:
    from torch._inductor import codecache

    def take(
        cls: type[Any],
        /,
        graph: Any,
        wrapper_code: str,
        _kernel_code: str,
        serialized_extern_kernel_nodes: str | None,
        **_: Any,
    ) -> str:
        result.append(
            GeneratedCode(
                wrapper=wrapper_code,
                kernels=graph.wrapper_code.kernels,
                constants=dict(graph.constants),
                constant_origins=dict(getattr(graph, "allocated_constant_name", {})),
                dispatcher_calls=_dispatcher_calls(serialized_extern_kernel_nodes),
                operators=fallbacks(graph),
                host_kernels=list(getattr(graph.wrapper_code, "host_kernels", ())),
            )
        )
        return "generated"

    with replaced(codecache.AotCodeCompiler, "compile", classmethod(take)):
        yield


def _dispatcher_calls(serialized: str | None) -> list[str]:
    """Operators that Inductor would hand to libtorch's dispatcher at run time: there is none, so they are reported."""
    if not serialized:
        return []
    nodes = json.loads(serialized)["nodes"]
    return [str(node["node"]["target"]).removeprefix("torch.ops.").replace("::", ".") for node in nodes]


def generate(
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    target: str,
    *,
    fold: bool = True,
    wording: Wording | None = None,
    custom: Mapping[torch._ops.OpOverload, str] | None = None,
    defined: Callable[[str], None] = lambda _: None,
) -> GeneratedCode:
    """Generates C++ for `gm`, a flat graph over tensors.

    Args:
        gm: placeholders are tensors and SymInts, parameters are `get_attr` nodes, the output is a flat tuple of
            tensors.
        inputs: the value of each placeholder, whose symbols carry the ranges.
        target: one of `supported_targets()`.
        fold: whether the values of constants of one element may become part of the code.
        wording: how the checks of the model are worded.
        custom: operators with kernels of the user → the C functions by which they are called.
        defined: called with the source of each kernel as soon as there is one.

    Raises:
        LoweringError: Inductor could not generate code; the cause is chained.
    """
    # Else it takes recurrent layers to oneDNN's, of which there is no kernel.
    with (
        _fixed_isa(target) as bits,
        _adapted(),
        _module_wrappers(defined),
        chosen_layouts(gm),
        custom_calls(custom or {}),
        decomposed_by(functions_for_cpus()),
        without_onednn(),
    ):
        return run_inductor(gm, inputs, _config(bits, fold=fold, custom=custom), wording=wording)


@copies_of_state_kept()
def run_inductor(
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    settings: dict[str, Any],
    *,
    wording: Wording | None = None,
) -> GeneratedCode:
    """Runs ahead-of-time code generation with what is the same for all devices; the caller has adapted the rest.

    Args:
        gm, inputs, wording: as `generate` has them.
        settings: of torch._inductor.config.

    Raises:
        LoweringError: Inductor could not generate code; the cause is chained.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_aot

    result: list[GeneratedCode] = []
    with (
        torch.no_grad(),
        warnings.catch_warnings(),
        _without_proxy_warning(),
        private_cache(),
        config.patch(settings),
        worded_asserts(wording or Wording()),
        _intercepted(result),
    ):
        # Inductor's own deprecated calls are nothing that a user can act on.
        warnings.simplefilter("ignore")
        try:
            with _symbols_of(gm):
                compile_fx_aot(gm, list(inputs))
        except (AotpackError, MemoryError, OSError):
            raise
        except Exception as error:
            raise LoweringError(
                f"TorchInductor could not generate code for this model: {summary(error)}{place_of(error)}", hint=REPORT
            ) from error
    if len(result) != 1:
        raise LoweringError(
            f"expected one generated program, TorchInductor produced {len(result)}", hint="please report this model"
        )
    return result[0]


@contextlib.contextmanager
def adapted_everywhere() -> Iterator[None]:
    """While active, everything of TorchInductor is replaced that is replaced for programs for every device."""
    load_lowerings()
    with contextlib.ExitStack() as stack:
        for adapter in (
            carried_values_updated_in_place,
            loop_results_reused_once,
            loops_without_constants,
            open_sizes,
            our_decompositions,
            checks_without_tokens,
            functional_graphs_kept,
            numbers_allowed,
            rare_dtypes_allowed,
            shims_of_later_versions,
            short_cuts,
        ):
            stack.enter_context(adapter())
        yield


@contextlib.contextmanager
def _adapted() -> Iterator[None]:
    with adapted_everywhere(), contextlib.ExitStack() as stack:
        for adapter in (
            _serial_when_small,
            asserts_checked,
            accurate_functions,
            kernels_annotated,
            without_discarded_kernels,
        ):
            stack.enter_context(adapter())
        yield


@contextlib.contextmanager
def _symbols_of(gm: torch.fx.GraphModule) -> Iterator[None]:
    """While active, data-dependent symbols have a shape environment even where no input has one."""
    from torch._guards import TracingContext, tracing

    with tracing(TracingContext(fake_mode(gm))):
        yield


@contextlib.contextmanager
def _without_proxy_warning() -> Iterator[None]:
    logger = logging.getLogger("torch._inductor.ir")
    logger.addFilter(_quiet_proxy_warning)
    try:
        yield
    finally:
        logger.removeFilter(_quiet_proxy_warning)


def _quiet_proxy_warning(record: logging.LogRecord) -> bool:
    # We list such operators ourselves, all at once.
    return "proxy executor" not in record.getMessage()
