"""Generated code that calls kernels of the user.

An operator in `aot_inductor.custom_ops_to_c_shims` is called by a C function of its own. TorchInductor names that
function by the last part of the operator's name, so that `my::mm` would be `aten::mm`; here each has a name of its own.
And what a kernel of the user returned is compared with what its fake implementation said, which the code that follows
relies on.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.ir.ExternKernel.set_cpp_kernel_name, .cpp_kernel_name, .op_overload
  torch._inductor.ir.MultiOutput.codegen, and of a MultiOutput: inputs, get_name, get_dtype, get_size, get_stride
  torch._inductor.codegen.cpp_wrapper_cpu.CppWrapperCpu.{codegen_shape_tuple, codegen_dtype, writeline}
  torch._library._out_variant.{to_out_variant, lookup_manual_out_variant}   absent before 2.12
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from aotpack.export.custom_ops.kernels import qualified_name
from aotpack.export.torch_compat.library import triton_operators_kept
from aotpack.export.torch_compat.patches import replaced


@contextlib.contextmanager
def custom_calls(names: Mapping[torch._ops.OpOverload, str]) -> Iterator[None]:
    """While active, generated code calls each operator of `names` by the C function that is named there.

    Operators with Triton kernels stay whole, so that they are called likewise, or reported as unsupported.
    """
    if not names:
        with triton_operators_kept():
            yield
        return
    with (
        triton_operators_kept(),
        _named(names),
        _results_checked(names),
        _without_out_variants(names),
    ):
        yield


@contextlib.contextmanager
def _named(names: Mapping[torch._ops.OpOverload, str]) -> Iterator[None]:
    from torch._inductor.ir import ExternKernel

    original: Any = ExternKernel.set_cpp_kernel_name

    @functools.wraps(original)
    def set_name(self: Any, cpp_kernel_name: str | None = None) -> None:
        original(self, cpp_kernel_name)
        if self.op_overload in names:
            self.cpp_kernel_name = names[self.op_overload]

    with replaced(ExternKernel, "set_cpp_kernel_name", set_name):
        yield


@contextlib.contextmanager
def _results_checked(names: Mapping[torch._ops.OpOverload, str]) -> Iterator[None]:
    from torch._inductor.ir import MultiOutput

    original: Any = MultiOutput.codegen

    @functools.wraps(original)
    def codegen(self: Any, wrapper: Any) -> None:
        original(self, wrapper)
        op = getattr(self.inputs[0], "op_overload", None)
        if op is not None and op in names:
            dtype = wrapper.codegen_dtype(self.get_dtype())
            sizes, strides = (wrapper.codegen_shape_tuple(shape) for shape in (self.get_size(), self.get_stride()))
            wrapper.writeline(
                f"aotpack::module::custom_conform({self.get_name()}, {dtype}, {sizes}, {strides}, "
                f"{json.dumps(qualified_name(op))});"
            )

    with replaced(MultiOutput, "codegen", codegen):
        yield


@contextlib.contextmanager
def _without_out_variants(names: Mapping[torch._ops.OpOverload, str]) -> Iterator[None]:
    """Kernels make their results: an operator that has an `.out` form too is not called by that."""
    try:
        module = importlib.import_module("torch._library._out_variant")
    except ImportError:
        yield
        return
    with contextlib.ExitStack() as stack:
        for name in ("to_out_variant", "lookup_manual_out_variant"):
            original = getattr(module, name, None)
            if original is not None:
                stack.enter_context(replaced(module, name, _except(original, names)))
        yield


def _except(original: Any, names: Mapping[torch._ops.OpOverload, str]) -> Any:
    @functools.wraps(original)
    def find(op: Any) -> Any:
        return None if op in names else original(op)

    return find
