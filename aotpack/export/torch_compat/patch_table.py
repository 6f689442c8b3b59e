"""The patches of torch that are applied while a model is captured. Those of TorchInductor: inductor_patch_table.py."""

from __future__ import annotations

from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patch import Patch

_OF_NUMBERS = (
    *("acos", "asin", "atan", "cos", "cosh", "degrees", "exp", "fabs", "log"),
    *("log10", "log2", "radians", "sin", "sinh", "sqrt", "tan", "tanh"),
)
_NO_FAKE = "torch.library.register_fake refuses operators that torch has a meta kernel for"
_FAKES = "torch._subclasses.fake_impls:op_implementations_dict"

ENTRIES: tuple[Patch, ...] = (
    # ---- numbers
    *(
        Patch(
            f"math:{name}",
            "becomes a constant in a trace of symbolic numbers; functions of `math` are shown to no TorchFunctionMode",
        )
        for name in _OF_NUMBERS
    ),
    Patch(
        places.SYMFLOAT_POW,
        "asks for a base that is not negative; methods of SymFloat are shown to no TorchFunctionMode",
        "self, other",
    ),
    Patch(
        places.SYMINT_REQUIRES_GRAD,
        "AOTAutograd asks each argument whether it wants a gradient; it has no public form that accepts SymInts",
        added=True,
    ),
    # ---- torch.export
    Patch(
        places.CHECK_WITH,
        "torch.export drops the messages of checks; nothing public reports them, and `torch._check` is shown to no "
        "TorchFunctionMode",
        "error_type, cond, message",
    ),
    *(
        Patch(
            f"torch._export.verifier:Verifier.{name}",
            "torch.export traces functions of symbolic numbers and refuses graphs with them; a verifier cannot be "
            "passed to it",
            "self",
        )
        for name in ("allowed_builtin_ops", "allowed_op_types")
    ),
    Patch(
        places.CONSTRAINTS_SOLVED,
        "torch.export fails where sympy cannot solve a relation of sizes, which it only needs for a message; Dim.AUTO "
        "does not leave it out",
        "self",
    ),
    Patch(
        places.TRACE_PRINT,
        "prints the graph so far to stderr when a trace fails, without an option; redirecting stderr would hide what "
        "the model prints",
        added=True,
    ),
    Patch(
        places.FILTER_FRAMES,
        "keeps of a stack what is called `forward` alone; torch.export does not accept a tracer",
        "self, user_stack_summary",
    ),
    Patch(
        places.CREATE_NODE,
        "looks at the stack for each parameter, which no line of the model makes; torch.export accepts no tracer",
        "self, kind, target, args, kwargs, name, type_expr",
    ),
    Patch(
        places.STACK_OF_NODE,
        "describes every frame of a stack for each node, and reads their lines; torch.export accepts no tracer",
        "tb, skip",
    ),
    Patch(
        places.FAKE_PARAMETERS,
        "shows each question about each parameter to all modes of functions; nothing public turns them off",
        "fake_mode, mod",
    ),
    Patch(
        places.FAKE_DECOMPOSED,
        "runs the decomposition of a batch norm for the layout of its result; no public option leaves it out",
        "func",
    ),
    Patch(
        places.FAKE_BATCH_NORM,
        f"the same; {_NO_FAKE}",
        added=True,
    ),
    Patch(
        places.DESCRIBE_VALUE,
        "shows each question about the value of a node to all modes of functions; nothing public turns them off",
        "proxy, val",
    ),
    Patch(
        "torch.nn.modules.module:_global_buffer_registration_hooks",
        "a trace that fails leaves a hook behind, by which no module can be given a buffer any more; the handle that "
        "removes it is lost",
        versions=("2.11", "2.12"),
    ),
    Patch(
        "torch._library.effects:EffectHolder.effect",
        "traces thread `aten._linalg_check_errors` by tokens, which neither decompositions nor archives have; effects "
        "of operators have no public interface",
        versions=("2.13", "2.13"),
    ),
    Patch(
        places.HIGHER_ORDER_ENVIRONMENT,
        "Dynamo, which traces the functions of torch.cond and loops, fails at the Python code of modes that are on; "
        "nothing public turns modes off",
        "",
    ),
    *(
        Patch(
            place,
            "calls of the operator take closures for constants, which only Dynamo passes as operands; nothing public "
            "calls the functions",
        )
        for place in (places.COND, places.WHILE_LOOP, places.SCAN, places.MAP)
    ),
    Patch(
        places.FLEX_NOT_COMPILED,
        "Dynamo does not compile attention with functions under modes; the switch has no public name",
    ),
    Patch(
        places.RUN_SCAN,
        "without Dynamo a scan whose function returns containers returns other ones; nothing public runs it so",
        "fn, args",
    ),
    Patch(
        places.COND_RESULT,
        "does not know the strides max(1, n) that results have where a size may be 0; nothing public says that both "
        "functions return the same layout",
        "a, b, mode",
    ),
    Patch(
        places.COND_GRADIENTS,
        "gradients of both functions have layouts of their own, which torch.cond rejects; operators of torch cannot be "
        "given another derivative",
        "fn, args, return_fw_outputs",
    ),
    *(
        Patch(
            place,
            "the derivative draws random numbers that are not those of the forward; nothing public shows it",
            "fn, args, include_key_set, exclude_key_set, force_enable_grad, subgraph_decomp_table",
        )
        for place in (places.COND_BACKWARD, places.MAP_BACKWARD)
    ),
    *(
        Patch(
            place,
            "the derivative of scan rejects integers, sizes and scans in each other, and saves weights in each step; "
            "operators of torch cannot be given another one",
        )
        for place in (places.SCAN_GRADIENTS, places.SCAN_PARTITIONER)
    ),
    Patch(
        places.RECOMPILE,
        "torch.export generates the code of a graph after each change, for which nothing calls; its own lazy modules "
        "cannot be passed to it",
        "self",
    ),
    # ---- dynamic shapes
    Patch(
        places.EVALUATE,
        "answers questions about layouts by the example, for a batch of 1 unlike for all others; the option "
        "backed_size_oblivious covers few of them",
        "self, orig_expr, hint, fx_node, size_oblivious, fallback_value, forcing_spec",
    ),
    Patch(
        places.PRODUCT_OF_SIZES,
        "calls operator.mul with all factors of a product, of which two count; there is no hook for sizes in a trace",
        "tracer, expr, out",
    ),
    Patch(
        places.MAKE_SYMBOL,
        "torch calls all sizes positive, so that sympy decides `n > 0` before it could become a guard; no option of "
        "ShapeEnv changes that",
        "prefix, idx, kwargs",
    ),
    Patch(
        places.GUARD_LINE,
        "gives no line of the model without Dynamo; torch.export does not accept a ShapeEnv",
        "self, framework_loc",
    ),
    Patch(
        places.INTERNAL_OVERLAP,
        "adds guards on the layout of slices that the model writes to; no option leaves the question out",
    ),
    Patch(
        places.CONV_BACKEND,
        "adds guards on which convolution torch would run; no option leaves the question out",
    ),
    Patch(
        places.CONV_MEMORY_FORMAT,
        "adds guards on the layout of a convolution's result; no option leaves the question out",
    ),
    # ---- derivatives
    Patch(
        places.AOT_EXPORT_FUNCTION,
        "watched: its graph has the origins of nodes, and aot_export_module returns another one",
        "func, args, num_params_buffers, decompositions, no_tangents, pre_dispatch, dynamic_shapes, "
        "keep_input_mutations, trace_joint, kwargs",
    ),
    Patch(
        places.RUN_BACKWARD,
        "every reverse derivative goes through it, and is noted or refused; torch.autograd.backward is shown to no "
        "TorchFunctionMode",
        "t_outputs, args, kwargs",
    ),
    Patch(
        places.FUNCTION_APPLY,
        "torch.export drops the backward of such a function; `apply` is shown to no TorchFunctionMode",
        "args, kwargs",
    ),
    Patch(
        places.ENTER_DUAL_LEVEL,
        "watched: every forward derivative goes through it; it is shown to no TorchFunctionMode",
        "",
    ),
    # ---- layers and functions
    Patch(
        places.ANY,
        "asks for the value of a tensor in functional.gaussian_nll_loss, which is checked otherwise; a "
        "TorchFunctionMode that sees a function is off while the function runs",
    ),
    Patch(
        places.VF_OF_RNN,
        "recurrent layers are captured as one operator each; a TorchFunctionMode would do that to calls of users, too",
    ),
    # ---- sizes and dtypes of results (older_torch.py)
    Patch(
        f"{_FAKES}[torch.ops.aten._embedding_bag_forward_only.default]",
        f"its meta kernel has the sizes of another mode; {_NO_FAKE}",
        added=True,
    ),
    Patch(
        f"{_FAKES}[torch.ops.aten.bincount.default]",
        f"takes weighted counts for integers; {_NO_FAKE}",
        "fake_mode, func, inputs, weights, minlength",
        versions=("2.11", "2.12"),
    ),
    *(
        Patch(
            f"{_FAKES}[torch.ops.aten.{name}.default]",
            f"takes places and counts for values; {_NO_FAKE}",
            f"fake_mode, func, arg, {parameters}",
            versions=("2.11", "2.11"),
        )
        for name, parameters in (
            ("_unique2", "sorted, return_inverse, return_counts"),
            ("unique_dim", "dim, sorted, return_inverse, return_counts"),
            ("unique_consecutive", "return_inverse, return_counts, dim"),
        )
    ),
    Patch(
        f"{_FAKES}[torch.ops.aten.slice.Tensor]",
        f"dynamic bounds become sizes out of data; {_NO_FAKE}",
        "fake_mode, func, self, dim, start, end, step",
        versions=("2.11", "2.11"),
    ),
    Patch(
        "torch._subclasses.fake_impls:_compute_slice_index",
        f"dynamic bounds become sizes out of data; {_NO_FAKE}",
        "size, index",
        versions=("2.11", "2.11"),
    ),
    Patch(
        "torch._decomp.decompositions:one_layer_lstm",
        "states have a dim of steps; the decomposition of aten.lstm is no function that can be called with another one",
        "inp, hidden, params, has_biases, reverse",
        versions=("2.11", "2.12"),
    ),
    # ---- kernels of users
    Patch(
        "torch._higher_order_ops.triton_kernel_wrap:TraceableTritonKernelWrapper.run",
        "puts a higher-order operator into the trace, which programs cannot hold; there is no hook for launches",
        "self, args, kwargs",
    ),
    Patch(
        "torch._higher_order_ops.triton_kernel_wrap:TraceableTritonKernelWrapper.__call__",
        "the same, for the other way to launch",
        "self, args, kwargs",
    ),
)
