"""The patches of TorchInductor that are applied while code is generated."""

from __future__ import annotations

from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patch import Patch

_NO_OPTION = "no option of torch._inductor.config changes it"
_NO_PRINTER = "TorchInductor accepts no other printer"

_NO_DESCRIPTION = "torch accepts no description of a GPU that the host does not have"

# Functions of torch.cuda that code generation asks, with their parameters.
CUDA_QUERIES = (
    ("is_available", ""),
    ("device_count", ""),
    ("current_device", ""),
    ("get_device_capability", "device"),
    ("get_device_properties", "device"),
    ("get_device_name", "device"),
    ("mem_get_info", "device"),
    ("is_bf16_supported", "including_emulation"),
    ("_exchange_device", "device"),
    ("_maybe_exchange_device", "device"),
    ("synchronize", "device"),
    ("get_rng_state", "device"),
    ("set_rng_state", "new_state, device"),
)

_WHILE_LOOP = "mode, cond_fn, body_fn, carried_inputs, additional_inputs, stack_output, mutated_arg_indices"

ENTRIES: tuple[Patch, ...] = (
    # ---- CUDA without a GPU
    *(
        Patch(f"torch.cuda:{name}", f"describes the host's GPU; {_NO_DESCRIPTION}", parameters)
        for name, parameters in CUDA_QUERIES
    ),
    Patch("torch.version:cuda", f"is None where torch is built for CPUs; {_NO_DESCRIPTION}"),
    Patch(
        "torch._dynamo.device_interface:device_interfaces",
        "describes the host's GPU; register_interface_for_device replaces it for good",
    ),
    Patch(
        "torch._subclasses.fake_tensor:FakeTensorMode.avoid_device_init",
        f"initialises CUDA for tensors without memory; {_NO_DESCRIPTION}",
    ),
    Patch(
        "torch._subclasses.fake_tensor:init_gpu_context",
        f"initialises CUDA in builds of torch for CUDA, on hosts without a GPU too; {_NO_DESCRIPTION}",
        "device",
    ),
    Patch(
        "torch._higher_order_ops.triton_kernel_wrap:triton_kernel_wrapper_mutation",
        "a decomposition must be functional; wrap_triton calls kernels that write to their arguments",
    ),
    Patch(
        "torch._higher_order_ops.triton_kernel_wrap:generate_ttir",
        "compiles a kernel again for each launch, several times; torch keeps none of the results",
        "kernel, kwargs, tma_descriptor_metadata",
    ),
    Patch(
        "torch._higher_order_ops.triton_kernel_wrap:ttir_to_functions",
        "reads the code of a kernel again for each launch, several times; torch keeps none of the results",
        "ttir_module",
    ),
    Patch(
        "triton.backends.nvidia.compiler:CUDABackend.make_ptx",
        "kernels are started when those before them have ended, and their barriers need one of the warp behind them; "
        "Triton has no option for either",
        "self, src, metadata, opt, capability",
    ),
    Patch(
        "torch._subclasses.fake_impls:_compute_stride",
        "the lowering of views compares dynamic sizes as they are in the example; no setting has it ask otherwise",
        "old_shape, old_stride, new_shape, size_oblivious",
    ),
    Patch(
        "torch._inductor.ir:significant_strides_equal",
        f"takes strides for different that are so without elements alone, and copies results away; {_NO_OPTION}",
        "strides1, strides2, shape",
    ),
    Patch(
        "torch._inductor.ir:try_match_insignificant_strides",
        f"makes another tensor of one whose strides differ without elements alone; {_NO_OPTION}",
        "tensor, strides",
    ),
    Patch(
        "torch._inductor.ir:WhileLoop.create",
        f"copies a cache that a loop carries for each row that it adds; {_NO_OPTION}",
        "cond_fn, body_fn, carried_inputs, additional_inputs, stack_output",
    ),
    Patch(
        "torch._inductor.codegen.cpp_wrapper_cpu:CppWrapperCpu.codegen_while_loop",
        f"reuses the memory of a result that a loop writes into twice at a time; {_NO_OPTION}",
        "self, while_loop, stack_output",
    ),
    *(
        Patch(
            place,
            "takes a counter that begins with a constant for a constant after the loop; no option of torch changes it",
            parameters,
        )
        for place, parameters in (
            (places.WHILE_LOOP_SIZES, _WHILE_LOOP),
            (places.WHILE_LOOP_STACK_SIZES, None),
            (places.SCAN_SIZES, None),
        )
    ),
    # ---- input and output of code generation
    Patch(
        "torch._inductor.codecache:AotCodeCompiler.compile",
        "receives the sources, which torch would compile; aot_inductor.package_cpp_only writes them to files, without "
        "the constants and calls of the graph",
        "graph, wrapper_code, kernel_code, serialized_extern_kernel_nodes, device_type, additional_files",
    ),
    Patch(
        "torch._inductor.compile_fx:_extract_inputs_from_exported_gm",
        "replaces inputs that are no tensors by None; ahead-of-time compilation has no scalar inputs",
        "gm, example_inputs_",
    ),
    Patch(
        "torch._inductor.compile_fx:aot_export_module",
        "traces graphs twice that are functional already; ahead-of-time compilation has no entry behind AOTAutograd",
        "mod, args, decompositions, trace_joint, output_loss_index, pre_dispatch, dynamic_shapes, kwargs",
    ),
    Patch(
        "torch._inductor.compile_fx:FakeTensorProp",
        "runs all calls of a graph on fake tensors that were traced just before; nothing says which need it",
        "module, mode",
    ),
    Patch(
        "torch._inductor.compile_fx:_unlift_graph",
        "expects the signature of AOTAutograd, which graphs that it did not trace do not have",
        "mod, gm, graph_signature",
    ),
    Patch(
        "torch._inductor.graph:get_wrapper_codegen_for_device",
        "wrappers of modules have a generator of their own (inductor/wrapper.py); a registered one would be the one of "
        "all devices of that name, for good",
        "device, cpp_wrapper, fx_wrapper",
    ),
    Patch(
        "torch._inductor.cpu_vec_isa:valid_vec_isa_list",
        "the target determines the instruction set; cpp.simdlen chooses among those of the host",
        "",
    ),
    Patch(
        places.SELECT_DECOMPOSITIONS,
        "TorchInductor decomposes by its own table; compile_fx_aot accepts no other one",
        "",
    ),
    Patch(
        places.MAKE_FALLBACK,
        "asserts that no table has what TorchInductor has no code for; a decomposition may leave some calls alone, "
        "and no option says so",
        "op, layout_constraint, warn, override_decomp, get_decomp_fn",
    ),
    # ---- kernels
    Patch(
        "torch._inductor.codegen.common:DataTypePropagation.deduce_node_dtype_by_inputs",
        "has no rule for dtypes that torch does not promote; rules cannot be registered",
        "self, node",
    ),
    Patch(
        "torch._inductor.codegen.common:KernelArgs.cpp_argdefs",
        f"passes scalar inputs in single precision; {_NO_OPTION}",
        "self, dtype_to_cpp_type",
    ),
    Patch(
        "torch._inductor.ir:IndexingConstant.make_loader",
        f"rounds a scalar input to the dtype of the tensor beside it; {_NO_OPTION}",
        "self",
    ),
    Patch(
        "torch._inductor.codegen.common:KernelTemplate._template_from_string",
        f"compiles templates that are never rendered; {_NO_OPTION}",
        "source",
    ),
    Patch(
        "torch._export.utils:_materialize_cpp_cia_ops",
        "goes through all operators again for each namespace while the table of decompositions is made; no option of "
        "torch changes it",
        "",
    ),
    Patch(
        "torch._inductor.compile_fx:joint_graph_passes",
        "patterns of attention are traced for graphs too that have no product; pattern_matcher switches all patterns "
        "off",
        "graph, input_device",
    ),
    Patch(
        "torch._inductor.fx_passes.joint_graph:lazy_init",
        "registers patterns that a graph cannot match; pattern_matcher switches all patterns off",
        "input_device",
    ),
    Patch(
        "torch._inductor.codegen.cpp:stride_at_vec_range",
        f"simplifies every index, most of which are sums of products already; {_NO_OPTION}",
        "index, var, vec_length",
    ),
    Patch(
        "sympy:simplify",
        "takes a second for a stride between minima, maxima and magnitudes, as windows and reflections have them; "
        f"{_NO_OPTION}",
        "expr, ratio, measure, rational, inverse, doit, kwargs",
    ),
    Patch(
        "torch._inductor.dtype_propagation:DtypePropagationOpsHandler.__init__",
        f"fills the table of all operators whenever the one instance is asked for; {_NO_OPTION}",
        "self",
    ),
    Patch(
        "torch._inductor.scheduler:SchedulerNode.codegen",
        f"generates the vectors of tails also where there is no tail; {_NO_OPTION} without changing other tails",
        "self, index_vars",
    ),
    Patch(
        "torch._inductor.codegen.cpp:CppScheduling.codegen_outer_loop_node",
        f"generates nests of loops twice that cannot become one; {_NO_OPTION}",
        "self, node",
    ),
    Patch(
        "torch._inductor.codegen.cpp:CppKernel.decide_parallel_depth",
        "cpp.dynamic_threads makes small loops parallel, and without it their number of threads is fixed",
        "self, max_parallel_depth, threads",
    ),
    Patch(
        "torch._inductor.codegen.cpp:CppKernel.device_assert_async",
        f"throws in a parallel region, which ends the process; {_NO_OPTION}",
        "self, cond, msg",
    ),
    Patch(
        "torch._inductor.codegen.cpp:CppScheduling.codegen_comment",
        f"does not say in the code what a kernel computes; {_NO_OPTION}",
        "self, node_schedule, kernel_name",
    ),
    Patch(
        "torch._inductor.ir:ExternKernel.codegen_comment",
        f"says what a call and the producers of its operands compute, together; {_NO_OPTION}",
        "self, wrapper, kernel_name",
    ),
    *(
        Patch(
            f"torch._inductor.codegen.cpp:CppVecOverrides.{name}",
            "is inaccurate near 0 in vectorised code; functions of kernels cannot be registered",
            "x",
        )
        for name in ("atanh", "erf", "expm1")
    ),
    Patch(
        "torch.fx.experimental.symbolic_shapes:_iterate_exprs",
        "rejects the dicts that functional launches of Triton kernels return; nothing public launches one",
        "val",
        versions=("2.11", "2.12"),
    ),
    Patch(
        "torch._inductor.codegen.cpp:CppKernel.need_use_acc_helper",
        f"adds guards on the length of sums; {_NO_OPTION}",
        "self, reduction_type, dtype, use_scalar",
        versions=("2.11", "2.11"),
    ),
    # ---- memory and layouts
    Patch(
        "torch._inductor.ir:ComputedBuffer.decide_layout",
        "takes undecided layouts for contiguous; layouts of loops cannot be constrained",
        "self",
    ),
    Patch(
        "torch._inductor.lowering:lowerings[torch.ops.aotpack.to_layout.default]",
        "lets a loop write in the chosen layout; the dict is the only way to register a lowering without a pattern",
        added=True,
    ),
    Patch(
        "torch._inductor.fx_passes.post_grad:remove_noop_ops",
        "removes copies of state that is written to later; no option leaves operators out of it",
        "graph",
    ),
    Patch(
        "torch._inductor.fx_passes.reinplace:compute_overlapping_tensors",
        "decides by the sizes of the example; the pass cannot be turned off without losing writes in place",
    ),
    Patch(
        "torch._inductor.fx_passes.reinplace:graph_call_function",
        "traces a write again, which adds guards; the pass cannot be turned off without losing writes in place",
        "graph, fn, args, kwargs",
    ),
    # ---- dynamic shapes
    *(
        Patch(
            f"torch._inductor.sizevars:SizeVarAllocator.{name}",
            "assumes sizes of the example; backed_size_oblivious does not apply to it",
            parameters,
        )
        for name, parameters in (
            ("evaluate_max", "self, left, right"),
            ("evaluate_min", "self, left, right"),
            ("guard_int_seq", "self, left"),
        )
    ),
    Patch(
        "torch._inductor.sizevars:SizeVarAllocator.guard_or_false",
        "fails where a size is divided by a difference of sizes, whose range torch cannot tell; no setting avoids it",
    ),
    Patch(
        "torch._inductor.ir:AssertScalar.codegen",
        "has the words of TorchInductor; it makes most of the asserts itself, so that no pass over the graph sees them",
        "self, wrapper",
    ),
    *(
        Patch(
            f"torch.utils._sympy.printers:CppPrinter._print_OpaqueUnaryFn_{name}",
            f"is missing; {_NO_PRINTER}",
            added=True,
        )
        for name in ("exp", "log", "log2", "sin", "asinh")
    ),
    *(
        Patch(
            f"torch.utils._sympy.printers:CppPrinter._print_{name}",
            f"rounds or overflows otherwise than Python; {_NO_PRINTER}",
            "self, expr",
        )
        for name in ("FloatPow", "IntTrueDiv", "Max", "Min", "PowByNatural")
    ),
    *(
        Patch(
            f"torch._inductor.lowering:lowerings[torch.ops.aten.{name}]",
            "slices with dynamic bounds get sizes that the trace made up; the dict is the only way to register a "
            "lowering without a pattern",
            "x, dim, start, end, step, clamp",
            versions=("2.11", "2.11"),
        )
        for name in ("slice", "slice.Tensor")
    ),
    # ---- calls of operators
    Patch(
        "torch._inductor.ir:ExternKernel.set_cpp_kernel_name",
        "names a C function without the namespace of the operator; aot_inductor.custom_ops_to_c_shims has no name",
        "self, cpp_kernel_name",
    ),
    Patch(
        "torch._inductor.ir:MultiOutput.codegen",
        "relies on what a fake implementation says of results; size_asserts are Python code",
        "self, wrapper",
    ),
    Patch(
        "torch._inductor.ir:FallbackKernel.codegen",
        "relies on what a fake implementation says of results on CUDA; size_asserts stop where strides differ",
        "self, wrapper",
    ),
    *(
        Patch(
            f"torch._library._out_variant:{name}",
            f"calls the `.out` form of a custom operator, for which there is no kernel; {_NO_OPTION}",
            "op",
            versions=(since, "2.13"),
        )
        for name, since in (("to_out_variant", "2.11"), ("lookup_manual_out_variant", "2.12"))
    ),
    *(
        Patch(
            f"torchgen.aoti.fallback_ops:inductor_fallback_ops[aten.{name}.default]",
            "has a C function only in later versions; custom_ops_to_c_shims does not apply to operators of aten",
            versions=("2.11", "2.12"),
            added=True,
        )
        for name in ("grid_sampler_3d", "grid_sampler_3d_backward")
    ),
)
