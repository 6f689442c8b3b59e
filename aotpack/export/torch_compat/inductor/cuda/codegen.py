"""Generates the C++ wrapper and compiles the Triton kernels of a program for a GPU that need not be there.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.codecache.CudaKernelParamCache.cache_clear   what the generator of wrappers knows of kernels
  torch._inductor.ir.TMADescriptor._CACHE   descriptors of matrices, which keep the graph that they belong to
  torch._inductor.cpu_vec_isa.valid_vec_isa_list   kernels of single numbers need no instruction set of the host's
  torch._higher_order_ops.triton_kernel_wrap.triton_kernel_wrapper_mutation
  torch._inductor.config, by name: settings that exist in some of the versions only
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch

from aotpack.export import ops
from aotpack.export.custom_ops.by_device import functions_for_gpus
from aotpack.export.torch_compat.inductor.asserts import Wording
from aotpack.export.torch_compat.inductor.codegen import (
    GeneratedCode,
    adapted_everywhere,
    run_inductor,
    settings_everywhere,
)
from aotpack.export.torch_compat.inductor.device_asserts import asserts_checked
from aotpack.export.torch_compat.library import decomposed_by
from aotpack.export.torch_compat.patches import replaced

# Settings that not every version has; without them the version does not do what they switch off.
_OPTIONAL = {"use_static_triton_launcher": False, "use_static_cuda_launcher": False}
# Else device code names files of the build.
_WITHOUT_LINES = "TRITON_DISABLE_LINE_INFO"


def generate_cuda(
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    num_inputs: int,
    *,
    wording: Wording | None = None,
    providers: Collection[str] = (),
) -> GeneratedCode:
    """Generates C++ for `gm`, a flat graph over fake tensors on `cuda:0`; `fake_gpu` is active.

    Args:
        gm: placeholders are tensors and SymInts: first the inputs of the module, then the constants that it reads.
        inputs: the value of each placeholder.
        num_inputs: how many of the placeholders are inputs.
        wording: how the checks of the model are worded.
        providers: libraries to ask before a kernel is launched that they can do the work of.

    Returns:
        The code. Its kernels are `CudaKernel`s.

    Raises:
        LoweringError: Inductor could not generate code; the cause is chained.
    """
    from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation
    from torch._inductor import cpu_vec_isa
    from torch._inductor.codecache import CudaKernelParamCache
    from torch._inductor.ir import TMADescriptor

    from aotpack.export.torch_compat.inductor.cuda.kernel_ir import kernels_read_once
    from aotpack.export.torch_compat.inductor.cuda.products import products_by_our_kernel
    from aotpack.export.torch_compat.inductor.cuda.user_kernels import launches_by_kernels
    from aotpack.export.torch_compat.inductor.cuda.wrapper import cuda_module_wrappers
    from aotpack.export.torch_compat.triton.barriers import barriers_in_order
    from aotpack.export.torch_compat.triton.early_starts import kernels_start_early

    # Passes over a graph remove what they take for dead in the graphs inside, whose launches are in place by then.
    torch.fx.has_side_effect(triton_kernel_wrapper_mutation)
    CudaKernelParamCache.cache_clear()
    try:
        with (
            adapted_everywhere(),
            kernels_read_once(),
            kernels_start_early(),
            barriers_in_order(),
            products_by_our_kernel(),
            launches_by_kernels(),
            decomposed_by(functions_for_gpus()),
            cuda_module_wrappers(num_inputs, providers),
            replaced(cpu_vec_isa, "valid_vec_isa_list", list),
            asserts_checked(),
            _without_lines(),
        ):
            return run_inductor(gm, inputs, _settings(), wording=wording)
    finally:
        CudaKernelParamCache.cache_clear()
        TMADescriptor._CACHE.clear()


def _settings() -> dict[str, Any]:
    from torch._inductor import config

    return {
        **settings_everywhere(),
        # Evaluates constants of one element on the device.
        "joint_graph_constant_folding": False,
        # Kernels are compiled when the wrapper is generated (cuda/kernels.py), and nothing is timed.
        "triton.autotune_at_compile_time": True,
        "triton.unique_kernel_names": True,
        "triton.cudagraphs": False,
        "shape_padding": False,
        "benchmark_fusion": False,
        "benchmark_epilogue_fusion": False,
        "benchmark_kernel": False,
        "coordinate_descent_tuning": False,
        "autotune_in_subproc": False,
        "max_autotune_gemm": False,
        "aot_inductor.embed_kernel_binary": False,
        # Which of our operators have C functions. Those that are called have names of the device.
        "aot_inductor.custom_ops_to_c_shims": {op: [name] for op, name in ops.C_SHIMS.items()},
        **{name: value for name, value in _OPTIONAL.items() if hasattr(config, name)},
    }


@contextlib.contextmanager
def _without_lines() -> Iterator[None]:
    before = os.environ.get(_WITHOUT_LINES)
    os.environ[_WITHOUT_LINES] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_WITHOUT_LINES]
        else:
            os.environ[_WITHOUT_LINES] = before
