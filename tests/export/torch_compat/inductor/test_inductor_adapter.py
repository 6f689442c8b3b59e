"""Canaries for every private interface of torch that the build side touches: they fail loudly when one moves."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from aotpack.errors import LoweringError
from aotpack.export import aot_export
from aotpack.export.backends.cpp_text import blank_literals
from aotpack.export.backends.cpu import kernel_source, wrapper_source, wrapper_words
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import bound_arguments, fake_mode
from aotpack.export.ops import recurrent
from aotpack.export.torch_compat.graphs import module_over
from aotpack.export.torch_compat.inductor import codegen
from aotpack.export.torch_compat.inductor.annotations import MARK
from aotpack.export.torch_compat.inductor.codegen import GeneratedCode, generate
from aotpack.targets import BY_NAME

aten = torch.ops.aten


def generated(program: Program, target: str = "x86-64-v3") -> GeneratedCode:
    inputs = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
    return generate(program.graph_module, inputs, target)


def assembled(code: GeneratedCode, inputs: int, outputs: int) -> wrapper_source.Wrapper:
    return wrapper_source.assemble(
        code.wrapper, constants=len(code.constants), target="x86-64-v3", num_inputs=inputs, num_outputs=outputs
    )


class Lookup(nn.Module):
    """A parallel kernel with a check, a serial one, and constants with dots in their names."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 16)
        self.inner = nn.Sequential(nn.LayerNorm(16))

    def forward(self, indices: Tensor, small: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner(self.table(indices)), small + 1


@pytest.fixture(scope="module")
def lookup() -> GeneratedCode:
    return generated(aot_export(Lookup().eval(), (torch.randint(0, 100, (4096,)), torch.randn(8))))


class TestSignatures:
    def test_compile_fx_aot(self) -> None:
        from torch._inductor.compile_fx import compile_fx_aot

        assert list(inspect.signature(compile_fx_aot).parameters)[:2] == ["model_", "example_inputs_"]

    def test_aot_code_compiler(self) -> None:
        from torch._inductor.codecache import AotCodeCompiler

        assert inspect.ismethod(AotCodeCompiler.compile), "compile is no classmethod any more"
        names = list(inspect.signature(AotCodeCompiler.compile).parameters)
        assert names[:4] == ["graph", "wrapper_code", "kernel_code", "serialized_extern_kernel_nodes"]

    def test_decide_parallel_depth(self) -> None:
        from torch._inductor.codegen.cpp import CppKernel

        assert list(inspect.signature(CppKernel.decide_parallel_depth).parameters) == [
            "self",
            "max_parallel_depth",
            "threads",
        ]

    @pytest.mark.parametrize("target", codegen.supported_targets())
    def test_instruction_sets(self, target: str) -> None:
        from torch._inductor import cpu_vec_isa

        assert callable(cpu_vec_isa.valid_vec_isa_list)
        name, bits = BY_NAME[target].vector_isa or ("", 0)
        assert getattr(cpu_vec_isa, name)().bit_width() == bits

    @pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
    def test_inductor_asks_the_list_that_is_replaced(self, target: str) -> None:
        from torch._inductor import config, cpu_vec_isa

        with codegen._fixed_isa(target) as bits, config.patch(codegen._config(bits, fold=True)):
            assert cpu_vec_isa.pick_vec_isa().bit_width() == bits

    @pytest.mark.parametrize("key", codegen._config(256, fold=True))
    def test_config_keys(self, key: str) -> None:
        from torch._inductor import config

        functools.reduce(getattr, key.split("."), config)

    def test_graph_lowering(self) -> None:
        from torch._inductor.graph import GraphLowering

        source = inspect.getsource(GraphLowering.__init__)
        assert "self.constants" in source
        assert "self.allocated_constant_name" in source

    def test_recurrent_functions(self) -> None:
        from torch.nn.modules import rnn

        assert callable(rnn._VF.lstm)  # type: ignore[attr-defined]
        assert callable(rnn._VF.gru)  # type: ignore[attr-defined]
        for layer, op in ((nn.LSTM(3, 4), recurrent.lstm), (nn.GRU(3, 4), recurrent.gru)):
            program = aot_export(layer, (torch.randn(5, 2, 3),), dynamic_shapes={"input": {0: Dim("steps")}})
            assert [n.target for n in program.graph.nodes if n.target is op] == [op]

    def test_graph_interfaces(self) -> None:
        program = aot_export(lambda x: torch.add(x, x, alpha=2), (torch.randn(3),))
        (node,) = program.graph.find_nodes(op="call_function", target=aten.add.Tensor)
        assert node._erased is False
        assert not node.target._schema.is_mutable
        assert node.target._schema.name == "aten::add"
        assert bound_arguments(node)["alpha"] == 2
        assert fake_mode(program.graph_module) is node.meta["val"].fake_mode
        assert aten.add_.Tensor._schema.is_mutable
        assert torch.Tag.nondeterministic_seeded in aten.rand.default.tags

    def test_graph_modules_generate_no_code_until_they_are_called(self) -> None:
        graph = torch.fx.Graph()
        graph.output(graph.call_function(torch.neg, (graph.placeholder("x"),)))
        module = module_over(nn.Module(), graph)
        assert module._needs_recompile()
        assert module(torch.ones(2)).tolist() == [-1, -1]
        assert not module._needs_recompile()
        module.recompile()
        assert module._needs_recompile()


class TestGeneratedText:
    def test_sources_and_constants_arrive(self, lookup: GeneratedCode) -> None:
        origins = {lookup.constant_origins[name] for name in lookup.constants}
        assert origins == {"table.weight", "inner.0.weight", "inner.0.bias"}
        assert lookup.dispatcher_calls == []

    def test_kernels_begin_with_the_prefix(self, lookup: GeneratedCode) -> None:
        assert lookup.kernels
        for kernel in lookup.kernels:
            assert kernel.strip().startswith(kernel_source.PREFIX)
            assert kernel.count('extern "C"') == 1
            assert kernel_source._FUNCTION.search(blank_literals(kernel))

    def test_kernels_are_all_that_torch_would_compile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from torch._inductor.codegen.wrapper import PythonWrapperCodegen

        whole: list[str] = []
        generate_lines: Any = PythonWrapperCodegen._generate

        def watched(self: Any, is_inference: bool) -> Any:
            wrapper, kernels = generate_lines(self, is_inference)
            whole.append(kernels.value)
            return wrapper, kernels

        monkeypatch.setattr(PythonWrapperCodegen, "_generate", watched)
        code = generated(aot_export(lambda x, y: ((x @ y).sin(), (y @ x).cos()), (torch.ones(4, 5), torch.ones(5, 4))))
        assert len(code.kernels) > 1
        assert "".join(code.kernels).split() == whole[0].split()

    def test_checks_and_their_messages(self, lookup: GeneratedCode) -> None:
        (kernel,) = lookup.kernels
        assert kernel_source._CHECK.search(kernel)
        assert kernel_source._BOUNDS_MESSAGE.search(kernel)

    def test_large_loops_are_parallel_and_small_ones_serial(self) -> None:
        for size, parallel in ((1 << 20, True), (64, False)):
            (kernel,) = generated(aot_export(lambda x: x.sin() + 1, (torch.randn(size),))).kernels
            assert ("#pragma omp parallel" in kernel) is parallel, size

    def test_vectors_have_the_targets_width(self) -> None:
        program = aot_export(lambda x: x.sin() + 1, (torch.randn(1024),))
        for target, step in (("x86-64-v3", 8), ("x86-64-v4", 16)):
            (kernel,) = generated(program, target).kernels
            assert f"+=static_cast<int64_t>({step}L)" in kernel

    def test_the_wrapper_has_kernels_and_one_function(self, lookup: GeneratedCode) -> None:
        assert lookup.wrapper.count("AOTInductorModel::run_impl(") == 1
        assert lookup.wrapper.count('extern "C"') == len(lookup.kernels)
        for index, name in enumerate(lookup.constants):
            assert lookup.wrapper.count(f"auto& {name} = constants_->at({index});") == 1
        for absent in ("#include", "AOTIRuntimeError", "const_run_impl", "AOTInductorModelKernels", "std::cerr"):
            assert absent not in lookup.wrapper, absent
        blanked = blank_literals(lookup.wrapper)
        assert blanked.count("{") == blanked.count("}")

    def test_calls_to_the_dispatcher_are_named(self) -> None:
        with torch.library._scoped_library("aotpack_test", "FRAGMENT") as library:
            library.define("twice(Tensor x) -> Tensor")
            library.impl("twice", lambda x: x * 2, "CPU")
            # As if C++ had registered it: operators whose kernel is Python are traced through.
            torch.library._impls.discard("aotpack_test/twice/CPU")
            torch.library.register_fake("aotpack_test::twice", torch.empty_like, lib=library)
            op = torch.ops.aotpack_test.twice
            code = generated(aot_export(lambda x: op(x) + 1, (torch.randn(4),)))
        assert code.dispatcher_calls == ["aotpack_test.twice"]

    def test_inductors_warning_of_such_calls_is_filtered_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from torch._inductor import ir
        from torch._inductor.graph import GraphLowering

        filters: list[object] = []
        run: Any = GraphLowering.run

        def watched(*args: Any) -> Any:
            filters.extend(ir.log.filters)
            return run(*args)

        monkeypatch.setattr(GraphLowering, "run", watched)
        generated(aot_export(lambda x: x + 1, (torch.randn(4),)))
        assert ir.log.name == "torch._inductor.ir"
        assert codegen._quiet_proxy_warning in filters
        assert codegen._quiet_proxy_warning not in ir.log.filters
        assert "using proxy executor as fallback" in inspect.getsource(ir)

    def test_failures_are_lowering_errors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        program = aot_export(lambda x: x + 1, (torch.randn(4),))
        from torch._inductor.graph import GraphLowering

        def fail(*_: object) -> None:
            raise RuntimeError("no such luck")

        monkeypatch.setattr(GraphLowering, "run", fail)
        with pytest.raises(LoweringError, match="no such luck"):
            generated(program)


class TestWrapper:
    def test_the_interface_of_the_module(self, lookup: GeneratedCode) -> None:
        wrapper = assembled(lookup, 2, 2)
        assert wrapper.text.startswith(wrapper_words.OWN)
        assert wrapper.text.endswith('AOTPACK_DEFINE_MODULE("x86-64-v3", 2, 2, 3)\n')
        assert MARK in lookup.wrapper
        assert MARK not in wrapper.text
        code = [line.partition(MARK)[0].rstrip() for line in lookup.wrapper.splitlines()]
        assert all(wrapper_words.with_own_names(line) in wrapper.text for line in code)

    def test_element_types_are_included_where_they_are_named(self) -> None:
        code = generated(aot_export(lambda x: x.to(torch.bfloat16).softmax(-1), (torch.randn(4, 32),)))
        text = assembled(code, 1, 1).text
        assert text.index("#include <c10/util/BFloat16.h>") < text.index("at::BFloat16*")

    def test_kernels_are_listed_with_their_operators(self, lookup: GeneratedCode) -> None:
        wrapper = assembled(lookup, 2, 2)
        assert len(wrapper.calls.kernels) == len(lookup.kernels)
        assert all(call.name.startswith("cpp_fused") and call.operators for call in wrapper.calls.kernels)
        code = generated(aot_export(lambda x, y: (x @ y).sin(), (torch.randn(4, 5), torch.randn(5, 6))))
        wrapper = assembled(code, 2, 1)
        product, fused = wrapper.calls.kernels
        assert (product.name, product.operators, product.nodes) == ("mm_out", ("aten.mm",), (("", "matmul"),))
        assert fused.name.startswith("cpp_fused_sin")
        assert (fused.operators, fused.nodes) == (("aten.sin",), (("", "sin"),))

    def test_shims_are_those_called(self) -> None:
        program = aot_export(lambda x, y: x @ y, (torch.randn(4, 5), torch.randn(5, 6)))
        code = generated(program)
        wrapper = assembled(code, 2, 1)
        assert "aoti_torch_cpu_mm_out" in wrapper.shims
        assert [call.name for call in wrapper.calls.kernels] == ["mm_out"]
        assert code.constants == {}

    def test_code_without_the_function_is_refused(self, lookup: GeneratedCode) -> None:
        renamed = dataclasses.replace(lookup, wrapper=lookup.wrapper.replace("::run_impl(", "::run_it("))
        with pytest.raises(LoweringError, match="no run_impl"):
            assembled(renamed, 2, 2)


def test_what_rare_dtypes_need_is_there() -> None:
    from torch._inductor.codegen.common import DataTypePropagation, OptimizationContext

    assert list(inspect.signature(DataTypePropagation.deduce_node_dtype_by_inputs).parameters) == ["self", "node"]
    assert OptimizationContext.key
    assert OptimizationContext(dtype=torch.int8).dtype is torch.int8
    # Where torch promotes them, this may go.
    for dtype in (torch.uint16, torch.float8_e5m2):
        with pytest.raises(RuntimeError):
            torch.promote_types(torch.bool, dtype)


def test_what_numbers_need_is_there() -> None:
    from torch._export.verifier import Verifier
    from torch._inductor import compile_fx
    from torch._inductor.codegen.common import KernelArgs
    from torch._inductor.ir import IndexingConstant

    extract = inspect.signature(compile_fx._extract_inputs_from_exported_gm)
    assert len(extract.parameters) == 2
    assert "const float" in inspect.getsource(KernelArgs.cpp_argdefs)
    assert {field.name for field in dataclasses.fields(IndexingConstant)} >= {"index", "dtype"}
    assert callable(Verifier.allowed_op_types) and callable(Verifier.allowed_builtin_ops)
    for name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "acos", "asin", "atan", "log2"):
        assert callable(getattr(torch, f"_sym_{name}"))
