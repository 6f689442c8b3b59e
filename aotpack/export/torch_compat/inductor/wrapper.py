"""TorchInductor's C++ wrapper generator for modules of archives.

TorchInductor's own wrapper is a whole library: AOTInductor's C interface, a model class with its kernels and constants,
input checks, and `AOTInductorModel::run_impl`. A module of an archive needs `run_impl` only. The runtime checks the
inputs, constants come from the manifest, and csrc/module has the model class and the module's interface.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.graph.get_wrapper_codegen_for_device
  torch._inductor.virtualized.V.graph.{constants, graph_inputs}
  torch._inductor.codegen.cpp_wrapper_cpu.CppWrapperCpu   the methods that `ModuleWrapper` overrides or calls
  torch._inductor.ir.{NonOwningLayout, ShapeAsConstantBuffer, Conditional.predicate, WhileLoop.additional_inputs}
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import sympy
import torch
from torch._inductor import graph as inductor_graph
from torch._inductor import ir
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.virtualized import V

from aotpack.export.torch_compat.inductor.annotations import allocation
from aotpack.export.torch_compat.patches import replaced

# csrc/module defines the class; the generated function is a member of it.
RUN = """
void AOTInductorModel::run_impl(AtenTensorHandle* input_handles, AtenTensorHandle* output_handles,
                                DeviceStreamType stream, AOTIProxyExecutorHandle proxy_executor) {
"""


class ModuleParts(CppWrapperCpu):
    """What the generators of wrappers have in common: a class to inherit from beside TorchInductor's own.

    What includes the headers and ends the file is written by the backends.
    """

    def __init__(self) -> None:
        self._declared_in: list[Any] = []
        super().__init__()  # type: ignore[no-untyped-call]

    def write_header(self) -> None:
        """No AOTInductor interface."""

    def add_device_include(self, device: str) -> None:
        """No includes."""

    def write_prefix(self) -> None:
        # Declarations of operators with C functions are in csrc/module/declare.
        self.prefix.writeline("namespace torch::aot_inductor {")

    def codegen_model_kernels(self) -> None:
        """No table of kernels: `run_impl` calls them by name."""

    def codegen_model_constructor(self) -> None:
        """No description of inputs and constants."""

    def codegen_const_run_driver(self) -> None:
        """No folding of constants at run time."""

    def codegen_dynamic_slice_size(self, node: Any) -> None:
        """Slices without a start or an end (`x[:n - m]`, `x[n:]`) get both: the generated code would have `None`, or
        with torch 2.11 an integer too large for C++.
        """
        node.start = 0 if node.start is None else node.start
        node.end = node.size if node.end is None or _is_open(node.end) else node.end
        super().codegen_dynamic_slice_size(node)  # type: ignore[no-untyped-call]

    def val_to_arg_str_for_prim_type(self, val: Any, type_: Any) -> str:
        """Strings have escapes; torch writes them between quotes as they are. Expressions of sizes are in parentheses:
        where an index is read in the call, torch writes its product with a stride, which may be a sum.
        """
        if isinstance(val, str):
            return _literal(val)
        text = str(super().val_to_arg_str_for_prim_type(val, type_))
        return f"({text})" if isinstance(val, sympy.Expr) and not val.is_Atom else text

    def codegen_int_array_var(self, int_array: str, writeline: Any, *args: Any, **kwargs: Any) -> str:
        """TorchInductor remembers by its `id` where it has declared an array. What is remembered has to live on: else
        the arrays of a later place are not declared.
        """
        self._declared_in.append(writeline)
        return str(super().codegen_int_array_var(int_array, writeline, *args, **kwargs))

    def codegen_conditional(self, conditional: Any) -> None:
        """A branch reads its own predicate. TorchInductor reads one for all that are in the same memory, as elements of
        a mask are.
        """
        predicate = conditional.predicate
        if not isinstance(predicate, ir.ShapeAsConstantBuffer):
            name = f"{conditional.get_name()}_predicate"
            conditional.predicate = _Named(str(predicate.codegen_reference()), name)
        try:
            super().codegen_conditional(conditional)  # type: ignore[no-untyped-call]
        finally:
            conditional.predicate = predicate

    def codegen_while_loop(self, while_loop: Any, *args: Any, **kwargs: Any) -> None:
        """What a loop reads in each step has a name. TorchInductor repeats an expression, which may be a view that the
        first reader frees.
        """
        given = while_loop.additional_inputs
        while_loop.additional_inputs = [
            _Named(_name_of(self, buffer, f"{while_loop.get_name()}_given{index}"))
            for index, buffer in enumerate(given)
        ]
        try:
            super().codegen_while_loop(while_loop, *args, **kwargs)  # type: ignore[no-untyped-call]
        finally:
            while_loop.additional_inputs = given

    def can_reuse(self, input_buffer: Any, output_buffer: Any = None) -> bool:
        """Nothing is computed in the place of a piece of another buffer.

        TorchInductor computes the operands of `cat` and `stack` in place in the result. An operator that reads such a
        piece last may then be computed in its place, in memory that is freed with the concatenation, and is overwritten
        before its last reader (gradients of recurrent layers, for instance).
        """
        # The scheduler passes its own nodes around the buffers. Without an output it asks what may be freed.
        buffer = getattr(input_buffer, "node", input_buffer)
        if output_buffer is not None and isinstance(getattr(buffer, "layout", None), ir.NonOwningLayout):
            return False
        return bool(super().can_reuse(input_buffer, output_buffer))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class _Named:
    """A buffer by how generated code refers to it, and a name for what is made of it."""

    reference: str
    name: str = ""

    def codegen_reference(self) -> str:
        return self.reference

    def get_name(self) -> str:
        return self.name


def _name_of(wrapper: Any, buffer: Any, name: str) -> str:
    """How generated code refers to a buffer as often as it likes: `name`, where it has no other one."""
    reference = str(buffer.codegen_reference())
    if isinstance(buffer, ir.ShapeAsConstantBuffer) or reference.isidentifier():
        return reference
    wrapper.writeline(f"RAIIAtenTensorHandle {name} = wrap_with_raii_handle_if_needed({reference});")
    return name


class ModuleWrapper(ModuleParts):
    """Generates the declarations of kernels and `run_impl`; what includes the headers and ends the file is written by
    `aotpack.export.backends.cpu.wrapper_source`.

    Attributes:
        kernels: the source of each kernel, in the order of their definitions.
        defined: called with each of them at once.
    """

    defined: ClassVar[Callable[[str], None]]

    def __init__(self) -> None:
        self.kernels: list[str] = []
        super().__init__()

    @classmethod
    def create(cls, *_: Any, **__: Any) -> ModuleWrapper:
        return cls()

    def write_wrapper_decl(self) -> None:
        self.prefix.splice(RUN)
        inputs = V.graph.graph_inputs
        with self.prefix.indent():
            handles = f"steal_from_raw_handles_to_raii_handles(input_handles, {len(inputs)})"
            self.prefix.writeline(f"auto inputs = {handles};")
            for index, (name, value) in enumerate(inputs.items()):
                if isinstance(value, sympy.Expr):
                    # A symbolic int is passed as a tensor of rank 0.
                    self.codegen_tensor_item(torch.int64, f"inputs[{index}]", name, self.prefix)
                else:
                    self.prefix.writeline(f"auto {name} = std::move(inputs[{index}]);")
            for index, name in enumerate(V.graph.constants):
                self.prefix.writeline(f"[[maybe_unused]] auto& {name} = constants_->at({index});")
            self.codegen_inputs()  # type: ignore[no-untyped-call]
            self.prefix.writeline("inputs.clear();")

    def make_buffer_allocation(self, buffer: Any) -> str:
        return f"{super().make_buffer_allocation(buffer)}  {allocation(buffer)}"  # type: ignore[no-untyped-call]

    def define_kernel(self, kernel_name: str, kernel_body: str, *args: Any, **kwargs: Any) -> None:
        # What it adds to the wrapper is written when all other kernels are there.
        type(self).defined(kernel_body)
        super().define_kernel(kernel_name, kernel_body, *args, **kwargs)

    def _define_kernel_helper(self, kernel_name: str, kernel_body: str, *args: Any, **kwargs: Any) -> None:
        self.kernels.append(kernel_body)
        super()._define_kernel_helper(kernel_name, kernel_body, *args, **kwargs)


def module_wrappers(defined: Callable[[str], None]) -> AbstractContextManager[None]:
    """While active, TorchInductor generates wrappers of modules; `defined` is called with the source of each kernel."""
    wrapper = type("Wrapper", (ModuleWrapper,), {"defined": staticmethod(defined)})
    return replaced(inductor_graph, "get_wrapper_codegen_for_device", lambda *_: wrapper)


def _is_open(end: Any) -> bool:
    return isinstance(end, (int, sympy.Integer)) and bool(end >= sys.maxsize)


def _literal(text: str) -> str:
    """The string as a C++ literal of its UTF-8 bytes."""
    # Octal escapes have three digits at most, so that the next character is never taken for a part of one.
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{"".join(plain)}"'
