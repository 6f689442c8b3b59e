"""TorchInductor's C++ wrapper generator for modules that run on CUDA devices.

Constants are inputs of the graph after those of the module: TorchInductor neither reads nor merges inputs, and copies
none of them to a device. Kernels are assets of the module, which `launchKernel` of csrc/module/device launches.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.codegen.cpp_wrapper_gpu.{CppWrapperGpu, DeferredTritonCallWrapper}   the methods overridden here
  torch._inductor.codegen.cpp_wrapper_gpu.CppWrapperGpu._triton_call_wrappers, DeferredTritonCallWrapper.kernel_name
  torch._inductor.utils.IndentedBuffer._lines
  torch._inductor.codegen.wrapper.PythonWrapperCodegen.{kernel_autotune_defs, define_user_defined_triton_kernel}
  torch._inductor.codegen.cpp_wrapper_gpu.CppWrapperGpu.generate_tma_descriptor, torch._inductor.ir.TMADescriptorStable
  torch._inductor.ir.{FallbackKernel, MultiOutput}.codegen, .layout, .get_name, .get_size, .get_stride
  torch._inductor.ir.IRNode.get_dtype
  torch._inductor.virtualized.V.graph.{graph_inputs, inputs_to_check, constants}
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import graph as inductor_graph
from torch._inductor import ir
from torch._inductor.codegen.cpp_wrapper_gpu import CppWrapperGpu, DeferredTritonCallWrapper
from torch._inductor.virtualized import V

from aotpack.export.ops.cuda.attempts import Attempt, attempt
from aotpack.export.ops.cuda.gpu import limits
from aotpack.export.torch_compat.inductor.cuda.kernels import DESCRIPTOR, CudaKernel, KernelCompiler
from aotpack.export.torch_compat.inductor.wrapper import RUN, ModuleParts
from aotpack.export.torch_compat.patches import replaced

_NUMBER = re.compile(r"(\s*)(?:int64_t|float) (\w+)(,?)")


class CudaModuleWrapper(ModuleParts, CppWrapperGpu):
    """Generates functions that launch kernels, and `run_impl`.

    Attributes:
        num_inputs: how many of the graph's inputs are inputs of the module; the others are constants.
        providers: libraries to ask before a kernel is launched that they can do the work of.
        kernels: the compiled kernels.
        host_kernels: the C++ of those that compute single numbers on the host.
    """

    def __init__(self, num_inputs: int, providers: Collection[str] = ()) -> None:
        self.num_inputs = num_inputs
        self.providers = providers
        self._attempts: dict[str, Attempt] = {}
        self.kernels: list[CudaKernel] = []
        self.host_kernels: list[str] = []
        super().__init__()

    def write_wrapper_decl(self) -> None:
        self.prefix.splice(RUN)
        inputs = list(V.graph.graph_inputs.items())
        with self.prefix.indent():
            handles = f"steal_from_raw_handles_to_raii_handles(input_handles, {self.num_inputs})"
            self.prefix.writeline(f"auto inputs = {handles};")
            for index, (name, value) in enumerate(inputs):
                if index >= self.num_inputs:
                    self.prefix.writeline(f"auto {name} = retain_constant(*constants_, {index - self.num_inputs});")
                elif isinstance(value, sympy.Expr):
                    # A symbolic int is passed as a tensor of rank 0.
                    self.codegen_tensor_item(torch.int64, f"inputs[{index}]", name, self.prefix)
                else:
                    self.prefix.writeline(f"auto {name} = std::move(inputs[{index}]);")
            first = len(inputs) - self.num_inputs
            for index, name in enumerate(V.graph.constants):
                self.prefix.writeline(f"[[maybe_unused]] auto& {name} = constants_->at({first + index});")
            self.prefix.writeline("[[maybe_unused]] constexpr NoKernelTable kernels{};")
            self.codegen_inputs()
            self.prefix.writeline("inputs.clear();")

    def codegen_inputs(self) -> None:
        # Constants are aligned; a copy would not be the state that the model writes to.
        V.graph.inputs_to_check = [i for i in V.graph.inputs_to_check or () if i < self.num_inputs]
        super().codegen_inputs()  # type: ignore[no-untyped-call]

    def _define_kernel_helper(
        self, kernel_name: str, kernel_body: str, metadata: str | None = None, gpu: bool = True, *rest: Any, **more: Any
    ) -> None:
        if not gpu:
            self.host_kernels.append(kernel_body)
        super()._define_kernel_helper(kernel_name, kernel_body, metadata, gpu, *rest, **more)

    def generate_and_run_autotune_block(self) -> None:
        """Compiles the kernels; there is no device to time them on."""
        _, shared_bytes = limits()
        compiler = KernelCompiler(shared_bytes)
        exec(self.kernel_autotune_defs.getvalue(), {"async_compile": compiler})
        self.kernels += [
            dataclasses.replace(kernel, provider=self._attempts[kernel.name].provider)
            if kernel.name in self._attempts
            else kernel
            for kernel in compiler.kernels
        ]

    def write_kernel_autotune_defs_header(self) -> None:
        """The definitions find their compiler where they are executed."""

    def define_user_defined_triton_kernel(
        self, kernel: Any, configs: Sequence[Any], kwargs: Mapping[str, Any], *rest: Any
    ) -> Any:
        """Compiles a kernel once for all integers that Triton compiles it alike for; TorchInductor does for each value.

        The launches of a kernel with one configuration differ in nothing else.
        """
        if len(configs) == 1:
            parameters = {parameter.name: parameter for parameter in kernel.params}
            alike = {name: _alike(value, parameters[name]) for name, value in kwargs.items()}
            # TorchInductor compares all values of the mapping, and reads those that are parameters.
            kwargs = {**alike, "": str(configs[0])}
        defined = super().define_user_defined_triton_kernel(kernel, configs, kwargs, *rest)
        given = inspect.signature(super().define_user_defined_triton_kernel).bind(kernel, configs, kwargs, *rest)
        # What TorchInductor makes part of the kernel, since 2.13.
        if given.arguments.get("epilogue_fusion") is None:
            self._attempt(defined[0], kernel, kwargs)
        return defined

    def _attempt(self, name: str, kernel: Any, arguments: Mapping[str, Any]) -> None:
        """Has a library asked before `kernel`, defined as `name`, is launched, if one can do its work."""
        if self.providers and isinstance(arguments.get("out"), ir.IRNode):
            found = attempt(kernel, arguments, arguments["out"].get_dtype(), self.providers)
            if found is not None:
                self._attempts[name] = found

    def generate_tma_descriptor(self, desc: Any) -> None:
        """Describes a matrix for kernels that read blocks of it; csrc/module/device has the types."""
        matrix = self.val_to_arg_str(desc.tensor)
        rows, columns = desc.block_shape
        described = f"aotpack::module::describe(&{desc.name}, {matrix}, {rows}, {columns})"
        self.writeline(f"{DESCRIPTOR} {desc.name};")  # type: ignore[no-untyped-call]
        self.writeline(f"aotpack::module::Owned {desc.name}_copy({described});")  # type: ignore[no-untyped-call]

    def finalize_prefix(self) -> None:
        for name, call in list(self._triton_call_wrappers.items()):
            fields = {field.name: getattr(call, field.name) for field in dataclasses.fields(call)}
            made = self._triton_call_wrappers[name] = _KernelCall(**fields)
            made.attempt = self._attempts.get(call.kernel_name)
        super().finalize_prefix()  # type: ignore[no-untyped-call]


class _KernelCall(DeferredTritonCallWrapper):
    """The function that launches one kernel: csrc/module/device knows it as `aotpack_kernel_<name>`.

    Attributes:
        attempt: what it tries first.
    """

    attempt: Attempt | None = None

    def generate_load_kernel(self, *_: Any) -> None:
        """The runtime has loaded it."""

    def generate_launch_kernel(self, prefix: Any, wrapper: Any, kernel_var_name: str, params: Any) -> None:
        name = kernel_var_name.rpartition(".")[2]
        _declare_numbers(prefix, self.wrapper_name, params["triton_meta"]["signature"])
        if self.attempt is not None:
            prefix.writeline(f"if ({self.attempt.call}) return;")
        super().generate_launch_kernel(prefix, wrapper, f"aotpack_kernel_{name}", params)  # type: ignore[no-untyped-call]


def _alike(value: Any, parameter: Any) -> Any:
    """An argument that Triton compiles a kernel alike for: of an integer, what it looks at is whether it is 1, a
    multiple of 16, and of 32 bits.
    """
    is_integer = isinstance(value, (int, sympy.Integer)) and not isinstance(value, bool)
    if parameter.is_constexpr or not is_integer or not -(1 << 31) <= value < 1 << 31:
        return value
    if parameter.do_not_specialize:
        return 3
    return 1 if value == 1 else 16 if value % 16 == 0 else 3


def _declare_numbers(prefix: Any, function: str, signature: Mapping[str, str]) -> None:
    """TorchInductor declares symbolic floats as integers among the parameters of `function`, whose body comes next."""
    lines = prefix._lines
    first = max(i for i, line in enumerate(lines) if isinstance(line, str) and f" {function}(" in line)
    for i in range(first, len(lines)):
        parameter = _NUMBER.fullmatch(lines[i]) if isinstance(lines[i], str) else None
        if parameter is not None and signature.get(parameter[2]) in ("fp32", "fp64"):
            lines[i] = f"{parameter[1]}double {parameter[2]}{parameter[3]}"


@contextlib.contextmanager
def cuda_module_wrappers(num_inputs: int, providers: Collection[str] = ()) -> Iterator[None]:
    """While active, TorchInductor generates wrappers of modules for CUDA devices, as `CudaModuleWrapper` has them."""

    class Wrapper(CudaModuleWrapper):
        @staticmethod
        def create(*_: Any, **__: Any) -> CudaModuleWrapper:
            return CudaModuleWrapper(num_inputs, providers)

    with (
        replaced(inductor_graph, "get_wrapper_codegen_for_device", lambda *_: Wrapper),
        _results_conform(ir.FallbackKernel),
        _results_conform(ir.MultiOutput),
    ):
        yield


@contextlib.contextmanager
def _results_conform(kind: Any) -> Iterator[None]:
    """Results of operators on the host get the strides that the code after them reads. The fake implementations of
    some have others for CUDA, as those of CUDA's kernels are.
    """
    original: Any = kind.codegen

    @functools.wraps(original)
    def codegen(self: Any, wrapper: Any) -> None:
        original(self, wrapper)
        # Results of branches and loops are those of their graphs.
        of_graphs = isinstance(self, ir.MultiOutput) and isinstance(self.inputs[0], (ir.Conditional, ir.WhileLoop))
        if isinstance(self.layout, ir.Layout) and self.layout.device.type == "cuda" and not of_graphs:
            sizes, strides = (wrapper.codegen_shape_tuple(shape) for shape in (self.get_size(), self.get_stride()))
            wrapper.writeline(f"aotpack::module::conform({self.get_name()}, {sizes}, {strides});")

    with replaced(kind, "codegen", codegen):
        yield
