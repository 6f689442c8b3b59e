"""Every patch of torch: what is replaced while a model is captured or lowered, declared in one table.

`applied` puts replacements in place, all under one lock, and restores what was there. A build holds the lock from its
first patch to its last (`exclusive`): patches are global to the process, so another thread must not trace meanwhile.
Tests are generated from the table: each entry must exist in the installed torch, accept the parameters that its
replacement was written for, and be restored afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MISSING: Any = object()
_LOCK = threading.RLock()


@dataclass(frozen=True)
class Patch:
    """One attribute that is replaced.

    Attributes:
        place: "module:attribute" or "module:Class.attribute".
        why: what is wrong without the patch.
        parameters: the names of its parameters in the last of `versions`, which the replacement relies on; None for
            what has no signature.
        versions: the first and the last version of torch that the patch was checked with.
        added: torch need not have such an attribute; then it is removed again.
    """

    place: str
    why: str
    parameters: str | None = None
    versions: tuple[str, str] = ("2.11", "2.13")
    added: bool = False

    def owner(self) -> Any:
        """The module or class whose attribute is replaced.

        Raises:
            ImportError, AttributeError: torch does not have it.
        """
        module, _, path = self.place.partition(":")
        return functools.reduce(getattr, path.split(".")[:-1], importlib.import_module(module))

    @property
    def name(self) -> str:
        """The attribute of `owner`."""
        return self.place.replace(":", ".").rpartition(".")[2]

    def original(self) -> Any:
        """What torch has in this place."""
        return None if self.added else getattr(self.owner(), self.name)


_OF_NUMBERS = (
    *("acos", "asin", "atan", "cos", "cosh", "degrees", "exp", "fabs", "log"),
    *("log10", "log2", "radians", "sin", "sinh", "sqrt", "tan", "tanh"),
)
_INDUCTOR = (
    Patch(
        "torch._inductor.codecache:AotCodeCompiler.compile",
        "receives the sources; torch would compile them",
        "graph, wrapper_code, kernel_code, serialized_extern_kernel_nodes, device_type, additional_files",
    ),
    Patch(
        "torch._inductor.codegen.common:DataTypePropagation.deduce_node_dtype_by_inputs",
        "rare dtypes have no rule",
        "self, node",
    ),
    Patch(
        "torch._inductor.codegen.common:KernelArgs.cpp_argdefs",
        "scalar inputs are passed in double",
        "self, dtype_to_cpp_type",
    ),
    Patch(
        "torch._inductor.codegen.cpp:CppKernel.decide_parallel_depth",
        "small loops stay serial",
        "self, max_parallel_depth, threads",
    ),
    Patch(
        "torch._inductor.codegen.cpp:CppKernel.device_assert_async",
        "asserts of kernels become checks of the call",
        "self, cond, msg",
    ),
    *(
        Patch(f"torch._inductor.codegen.cpp:CppVecOverrides.{name}", "accurate vectorised functions", "x")
        for name in ("atanh", "erf", "expm1")
    ),
    Patch(
        "torch._inductor.compile_fx:_extract_inputs_from_exported_gm",
        "scalar inputs have values",
        "gm, example_inputs_",
    ),
    Patch(
        "torch._inductor.cpu_vec_isa:valid_vec_isa_list",
        "the target determines the instruction set",
        "",
    ),
    Patch(
        "torch._inductor.fx_passes.post_grad:remove_noop_ops",
        "copies of state are kept",
        "graph",
    ),
    Patch("torch._inductor.fx_passes.reinplace:compute_overlapping_tensors", "the answer holds for all sizes"),
    Patch(
        "torch._inductor.fx_passes.reinplace:graph_call_function",
        "traces at all sizes",
        "graph, fn, args, kwargs",
    ),
    Patch(
        "torch._inductor.graph:get_wrapper_codegen_for_device",
        "wrappers of modules have a generator of their own, see inductor/wrapper.py",
        "device, cpp_wrapper, fx_wrapper",
    ),
    Patch(
        "torch._inductor.ir:AssertScalar.codegen",
        "checks have the words of the model",
        "self, wrapper",
    ),
    Patch(
        "torch._inductor.ir:ComputedBuffer.decide_layout",
        "layouts are those that the passes chose",
        "self",
    ),
    Patch(
        "torch._inductor.ir:ExternKernel.set_cpp_kernel_name",
        "custom operators have names of their own",
        "self, cpp_kernel_name",
    ),
    Patch(
        "torch._inductor.ir:IndexingConstant.make_loader",
        "scalar inputs are loaded in double",
        "self",
    ),
    Patch(
        "torch._inductor.ir:MultiOutput.codegen",
        "results of custom operators are checked",
        "self, wrapper",
    ),
    *(
        Patch(f"torch._inductor.sizevars:SizeVarAllocator.{name}", "assumes sizes of the example", parameters)
        for name, parameters in (
            ("evaluate_max", "self, left, right"),
            ("evaluate_min", "self, left, right"),
            ("guard_int_seq", "self, left"),
        )
    ),
    *(
        Patch(f"torch.utils._sympy.printers:CppPrinter._print_OpaqueUnaryFn_{name}", "has no code for it", added=True)
        for name in ("exp", "log", "log2", "sin", "asinh")
    ),
    *(
        Patch(f"torch.utils._sympy.printers:CppPrinter._print_{name}", "rounds or overflows otherwise", "self, expr")
        for name in ("FloatPow", "IntTrueDiv", "PowByNatural")
    ),
    Patch(
        "torch._library._out_variant:lookup_manual_out_variant",
        "custom operators are not called by `.out` forms",
        "op",
    ),
    Patch(
        "torch._library._out_variant:to_out_variant",
        "custom operators are not called by `.out` forms",
        "op",
    ),
    Patch("torch._decomp.decompositions:one_layer_lstm", "states have a dim of steps", versions=("2.11", "2.12")),
    Patch("torch._subclasses.fake_impls:_compute_slice_index", "dynamic bounds", versions=("2.11", "2.11")),
    Patch("torch._inductor.codegen.cpp:CppKernel.need_use_acc_helper", "guards on sums", versions=("2.11", "2.11")),
)
_DECLARED = (
    *_INDUCTOR,
    *(Patch(f"math:{name}", "becomes a constant in a trace of symbolic numbers") for name in _OF_NUMBERS),
    Patch("torch:SymFloat.__pow__", "asks for a base that is not negative", "self, other"),
    Patch("torch:SymInt.requires_grad", "AOTAutograd asks each argument whether it wants a gradient", added=True),
    Patch("torch:_check_with", "torch.export drops the messages of checks", "error_type, cond, message"),
    Patch("torch:_debug_has_internal_overlap", "adds guards on the layout of slices that the model writes to"),
    Patch("torch:any", "asks for the value of a tensor in functional.gaussian_nll_loss, which is checked otherwise"),
    Patch("torch._C:_select_conv_backend", "adds guards on which convolution torch would run"),
    Patch("torch._C:_conv_determine_backend_memory_format", "adds guards on the layout of a convolution's result"),
    Patch(
        "torch._export.verifier:Verifier.allowed_builtin_ops",
        "torch.export traces functions of symbolic numbers and refuses graphs with them",
        "self",
    ),
    Patch(
        "torch._export.verifier:Verifier.allowed_op_types",
        "torch.export traces functions of symbolic numbers and refuses graphs with them",
        "self",
    ),
    Patch(
        "torch._functorch.aot_autograd:_aot_export_function",
        "watched: the first trace has the origins",
        "func, args, num_params_buffers, decompositions, no_tangents, pre_dispatch, dynamic_shapes, "
        "keep_input_mutations, trace_joint, kwargs",
    ),
    Patch("torch._inductor.compile_fx:select_decomp_table", "TorchInductor takes no decompositions of its callers", ""),
    Patch(
        "torch._inductor.graph:make_fallback",
        "asserts that no table has what TorchInductor has no code for",
        "op, layout_constraint, warn, override_decomp, get_decomp_fn",
    ),
    Patch(
        "torch.autograd:_engine_run_backward",
        "watched: every reverse derivative goes through it",
        "t_outputs, args, kwargs",
    ),
    Patch(
        "torch.autograd:backward",
        "a model's own backward below autograd would be a second one",
        "tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs",
    ),
    Patch(
        "torch.autograd:grad",
        "a model's own gradient below autograd would be a second one",
        "outputs, inputs, grad_outputs, retain_graph, create_graph, only_inputs, allow_unused, is_grads_batched, "
        "materialize_grads",
    ),
    Patch(
        "torch.autograd:Function.apply",
        "torch.export drops the backward of such a function",
        "args, kwargs",
    ),
    Patch("torch.autograd.forward_ad:enter_dual_level", "watched: every forward derivative goes through it", ""),
    Patch("torch.export._trace:print", "prints the graph so far when a trace fails", added=True),
    Patch(
        "torch.fx.experimental.symbolic_shapes:make_symbol",
        "torch calls all sizes positive, so that sympy decides `n > 0` before it could become a guard",
        "prefix, idx, kwargs",
    ),
    Patch(
        "torch.fx.experimental.symbolic_shapes:ShapeEnv._get_sloc",
        "gives no line of the model without Dynamo",
        "self, framework_loc",
    ),
    Patch(
        "torch.fx.proxy:TracerBase._filter_traceback_frames",
        "keeps of a stack what is called `forward` alone",
        "self, user_stack_summary",
    ),
    Patch("torch.nn:Module.register_parameter", "new modules get parameters without memory", "self, name, param"),
    Patch("torch.nn.modules.rnn:_VF", "recurrent layers are captured as one operator each"),
)
_TABLE: dict[str, Patch] = {patch.place: patch for patch in _DECLARED}


def table() -> Mapping[str, Patch]:
    """All patches by place: those of this file, and those that `declare` added."""
    return types.MappingProxyType(_TABLE)


def declare(owner: Any, name: str, why: str) -> str:
    """Adds an attribute of a class or module to the table; returns its place.

    Raises:
        ValueError: it is in the table already.
    """
    place = _place(owner, name)
    if place in _TABLE:
        raise ValueError(f"{place} is patched already")
    _TABLE[place] = Patch(place, why)
    return place


def _place(owner: Any, name: str) -> str:
    if isinstance(owner, types.ModuleType):
        return f"{owner.__name__}:{name}"
    return f"{owner.__module__}:{owner.__qualname__}.{name}"


@contextlib.contextmanager
def applied(replacements: Mapping[str, Callable[[Any], Any]]) -> Iterator[None]:
    """While active, each place has what its function makes of what is there now (None for an attribute that is added).

    Raises:
        KeyError: a place is not in the table.
    """
    with _LOCK, contextlib.ExitStack() as stack:
        for place, make in replacements.items():
            patch = _TABLE[place]
            owner = patch.owner()
            before = vars(owner).get(patch.name, _MISSING)
            now = make(getattr(owner, patch.name, None) if patch.added else getattr(owner, patch.name))
            stack.callback(_restore, owner, patch.name, before)
            setattr(owner, patch.name, now)
        yield


def _restore(owner: Any, name: str, before: Any) -> None:
    if before is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, before)


def replaced(owner: Any, name: str, replacement: Any) -> contextlib.AbstractContextManager[None]:
    """`applied` for one attribute of a class or module, whose replacement is known already.

    Raises:
        KeyError: when entered: it is not in the table.
    """
    return applied({_place(owner, name): always(replacement)})


def exclusive(function: Callable[P, R]) -> Callable[P, R]:
    """The function, of which one call at a time traces or lowers: others would run with its patches."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _LOCK:
            return function(*args, **kwargs)

    return call


def always(result: Any) -> Callable[[Any], Any]:
    """A replacement that is this object."""
    return lambda _: result


def returning(result: Any) -> Callable[[Any], Any]:
    """A replacement that returns this, whatever it is called with."""
    return lambda _: lambda *_args, **_kwargs: result


def parameters(function: Any) -> str | None:
    """The names of a function's parameters, as `Patch.parameters` has them; None for what has no signature."""
    try:
        return ", ".join(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
