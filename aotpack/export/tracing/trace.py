"""Tracing: how torch.export is called, and how its errors are reported.

torch learns which sizes are dynamic, and nothing else of them (`Dim.AUTO`): with names and ranges it would reject what
it cannot express by them. What the user declared is stated by `torch._check` before the model runs.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from aotpack.errors import CaptureError
from aotpack.export.custom_ops.inlining import custom_operators_inlined
from aotpack.export.diagnostics import model_lines
from aotpack.export.diagnostics.check_messages import messages_noted
from aotpack.export.ir.rewriter import is_dense
from aotpack.export.overrides import functions_overridden
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.symbolic_shapes.canonical import conjuncts, is_integer
from aotpack.export.symbolic_shapes.declared import Declared, Note
from aotpack.export.symbolic_shapes.symbolic_math import sym_functions_allowed, symbolic_math
from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.export import export_below_autograd
from aotpack.export.torch_compat.older_torch import captures_mended
from aotpack.export.tracing import gradients
from aotpack.export.tracing.helper_objects import helpers_follow
from aotpack.export.tracing.interface import Call
from aotpack.export.tracing.python_state.held import holds_state
from aotpack.export.tracing.quick_fakes import quick_fakes
from aotpack.export.tracing.quiet import torch_quiet
from aotpack.export.tracing.state import objects_put_back

# What torch.export appends to its messages.
_EXPORT_NOISE = (
    "\n\nconsider using data-dependent friendly",
    "\nCaused by: ",
    "\n\n  Developer debug context",
    "\n\nfrom user code",
    "\n\nThe error above occurred",
    "\nThe following call raised this error",
    "\nTo fix the error",
    "\nFor more information",
)


@dataclass(frozen=True)
class Traced:
    """What torch.export made of a call, and what there is to say of how."""

    exported: ExportedProgram
    notes: tuple[Note, ...] = ()


def trace(module: torch.nn.Module, call: Call, dynamic_shapes: Any) -> Traced:
    """The module as torch.export sees it in this call.

    It is run with symbolic sizes, of which torch assumes not even that they are neither 0 nor 1. Where that fails, it
    is run with torch's usual assumptions. Where Python code turns a size into a number, it is traced once more by
    Dynamo, which follows most of such code; it comes second because it follows less of everything else.

    Raises:
        CaptureError: it cannot be captured; the message names the line of the model, the hint the way out.
    """
    try:
        return _trace(module, call, dynamic_shapes)
    except CaptureError as error:
        if error.hint is None and error.__cause__ is not None:
            error.hint = _advice(module, call, dynamic_shapes)
        raise


def _trace(module: torch.nn.Module, call: Call, dynamic_shapes: Any) -> Traced:
    if dynamic_shapes is None:
        with shape_env.lines_of_the_model():
            return Traced(_export(module, call, None))
    named: list[sympy.Symbol] = []
    try:
        with shape_env.sizes_from_zero(), shape_env.lines_of_the_model(), _stated(module, call, named):
            exported = _export(module, call, dynamic_shapes)
    except CaptureError as error:
        return _by_other_means(module, call, dynamic_shapes, error)
    pinned = _pinned(exported, named)
    if pinned:
        followed = _followed(module, call, dynamic_shapes)
        if followed is not None and len(_pinned(followed, None)) < len(_pinned(exported, None)):
            note = Note(
                "capture", "traced by Dynamo (strict=True), because Python code of the model computes with sizes"
            )
            return Traced(followed, (note,))
    return Traced(exported)


def _by_other_means(module: torch.nn.Module, call: Call, dynamic_shapes: Any, error: CaptureError) -> Traced:
    """What can be traced in another way than the one that failed.

    Raises:
        CaptureError: `error`, if nothing can.
    """
    fixed, places = _ones_fixed(module, call, dynamic_shapes)
    if places:
        notes = tuple(Note(place, "is always 1, as in the example: the model requires it") for place in places)
        with (
            contextlib.suppress(CaptureError),
            shape_env.sizes_from_zero(),
            shape_env.lines_of_the_model(),
            _stated(module, call, []),
        ):
            return Traced(_export(module, call, fixed), notes)
    with contextlib.suppress(CaptureError), shape_env.lines_of_the_model(), _stated(module, call, []):
        exported = _export(module, call, dynamic_shapes)
        _assume_nothing_of_small_sizes(exported)
        text = "traced as if no size were 0 or 1, because it cannot be traced otherwise; trial calls check these sizes"
        return Traced(exported, (Note("capture", text),))
    followed = _followed(module, call, dynamic_shapes)
    if followed is None:
        raise error
    return Traced(followed, (Note("capture", "traced by Dynamo (strict=True), because it cannot be traced otherwise"),))


def _ones_fixed(module: torch.nn.Module, call: Call, dynamic_shapes: Any) -> tuple[Any, list[str]]:
    """The shapes without sizes that have no name and are 1 in the example, and where these are.

    A tensor that is broadcast in the example has such a size, and most often is meant to be.
    """
    leaves, tree = pytree.tree_flatten((call.args, call.kwargs))
    args, kwargs = pytree.tree_unflatten(range(len(leaves)), tree)
    names = call.leaf_names()
    places: list[str] = []

    def fix(leaf: int, axes: Any) -> Any:
        if not isinstance(axes, dict) or not isinstance(leaves[leaf], torch.Tensor):
            return axes
        known = call.declared.sizes[leaf] if call.declared is not None else {}
        ones = [axis for axis in axes if axis not in known and leaves[leaf].shape[axis] == 1]
        places.extend(f"input {names[leaf]!r}, axis {axis}" for axis in ones)
        return {axis: size for axis, size in axes.items() if axis not in ones} or None

    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    return {name: pytree.tree_map(fix, value, dynamic_shapes[name]) for name, value in bound.items()}, places


def _export(module: torch.nn.Module, call: Call, dynamic_shapes: Any, *, strict: bool = False) -> ExportedProgram:
    if strict and holds_state(module):
        raise CaptureError("Dynamo does not follow state in Python objects")
    # Calls bring inputs into dense memory; strides of an example that is not dense would be taken for granted.
    if gradients.takes_gradients(module):
        if strict:
            raise CaptureError("Dynamo does not follow a model that computes gradients itself")
        export = export_below_autograd
    else:
        export = partial(torch.export.export, strict=strict)
    args, kwargs = pytree.tree_map_only(torch.Tensor, _dense, (call.args, call.kwargs))
    try:
        # Dynamo knows the functions of `math`, and where tensors are, itself.
        followed = contextlib.nullcontext() if strict else _followed_by_hand(module)
        with (
            torch_quiet(),
            objects_put_back(module),
            captures_mended(),
            sym_functions_allowed(),
            shape_env.unsolved_relations_allowed(),
            followed,
            gradients.watched() as seen,
        ):
            exported = export(module, args, kwargs or None, dynamic_shapes=dynamic_shapes)
            if gradients.kept_wrapped(exported):
                # A joint graph is derived from what is traced, which must not be cut from its history.
                below = module if torch.is_grad_enabled() else gradients.with_gradients(module)
                return export_below_autograd(below, args, kwargs or None, dynamic_shapes=dynamic_shapes)
        if seen.backward and not gradients.takes_gradients(module):
            # torch has taken what it could not follow for constants.
            raise CaptureError(
                "the model computes gradients itself, which its example call did not",
                hint="capture it without `weights`, and with an example that takes the same path through the model",
            )
        return exported
    except CaptureError:
        raise
    except SystemExit as error:
        raise CaptureError(
            f"the model calls exit while it is traced: exit({error.code!r}){model_lines.at_line(error)}",
            hint="raise an exception in the model instead of calling exit() or sys.exit()",
        ) from error
    except Exception as error:
        raise CaptureError(f"the model cannot be captured: {message(error)}", hint=_export_hint(error, call)) from error


@contextlib.contextmanager
def _followed_by_hand(module: torch.nn.Module) -> Iterator[None]:
    """While active, what torch.export without Dynamo does not follow is followed."""
    with (
        helpers_follow(module),
        symbolic_math(),
        custom_operators_inlined(),
        functions_overridden(),
        messages_noted(),
        quick_fakes(),
    ):
        yield


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if is_dense(tensor) else tensor.detach().contiguous().requires_grad_(tensor.requires_grad)


def _followed(module: torch.nn.Module, call: Call, dynamic_shapes: Any) -> ExportedProgram | None:
    """The module traced by Dynamo; None where that fails, does not keep the names of parameters, or leaves launches of
    Triton kernels, which Dynamo turns into higher-order operators where there is a GPU.
    """
    with contextlib.suppress(CaptureError), shape_env.sizes_from_zero(), shape_env.lines_of_the_model():
        exported = _export(module, call, dynamic_shapes, strict=True)
        known = {*dict(module.named_parameters(remove_duplicate=False)), *dict(module.named_buffers())}
        signature = exported.graph_signature
        if known.issuperset(signature.parameters) and not _launches_kernels(exported):
            return exported
    return None


def _launches_kernels(exported: ExportedProgram) -> bool:
    graphs = (module.graph for module in exported.graph_module.modules() if isinstance(module, torch.fx.GraphModule))
    targets = (node.target for graph in graphs for node in graph.nodes if node.op == "call_function")
    return any(getattr(target, "__name__", "").startswith("triton_kernel_wrapper") for target in targets)


# ---- what the user declared -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _stated(module: torch.nn.Module, call: Call, named: list[sympy.Symbol]) -> Iterator[None]:
    """While active, a call of the module begins with the ranges and relations of the user's dims.

    `named` receives the symbols of sizes that have a name.
    """
    declared, order = call.declared, list(call.kwargs)

    def state(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        leaves = pytree.tree_leaves((args, {key: kwargs[key] for key in order}))
        if declared is not None and len(leaves) == len(declared.sizes):
            _state(leaves, declared, named)

    hook = module.register_forward_pre_hook(state, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def _state(leaves: Sequence[Any], declared: Declared, named: list[sympy.Symbol]) -> None:
    sizes = [
        (value if isinstance(value, torch.SymInt) else value.shape[axis], ref)
        for value, refs in zip(leaves, declared.sizes, strict=True)
        for axis, ref in refs.items()
        if isinstance(value, (torch.SymInt, torch.Tensor))
    ]
    roots: dict[str, Any] = {}
    for size, ref in sorted(sizes, key=lambda item: item[1].mul != 1 or item[1].add != 0):
        symbol = shape_env.first_symbol(size)
        if symbol is not None:
            named.append(symbol)
        if ref.dim in roots:
            torch._check(size == ref.mul * roots[ref.dim] + ref.add)
        elif ref.mul == 1:
            roots[ref.dim] = size - ref.add
        else:
            torch._check((size - ref.add) % ref.mul == 0)
            roots[ref.dim] = (size - ref.add) // ref.mul
    for name, size in roots.items():
        dim = declared.dims.get(name)
        if dim is None or not isinstance(size, torch.SymInt):
            continue
        if dim.min > -(1 << 63):
            torch._check(size >= dim.min)
        if dim.max is not None:
            torch._check(size <= dim.max)
        if dim.multiple_of != 1:
            torch._check(size % dim.multiple_of == 0)


# ---- what became of it ----------------------------------------------------------------------------------------------


def _pinned(exported: ExportedProgram, named: Sequence[sympy.Symbol] | None) -> list[sympy.Basic]:
    """What Python code of the model has fixed: symbols of `named` (None: of any inputs) that are constants, and
    conditions in which a number that is computed from sizes in floats is a constant.
    """
    env = shape_env.graph_environment(exported.graph)
    if env is None:
        return []
    symbols = [symbol for symbol in env.var_to_range if shape_env.is_input(env, symbol)]
    found: list[sympy.Basic] = [
        symbol
        for symbol in (symbols if named is None else dict.fromkeys(named))
        if shape_env.resolved(env, symbol).is_number
    ]
    for assumption in shape_env.guards(env):
        for condition in conjuncts(assumption.expr):
            if isinstance(condition, sympy.Eq) and condition.free_symbols and not is_integer(condition):
                found.append(condition)
    return found


def _assume_nothing_of_small_sizes(exported: ExportedProgram) -> None:
    env = shape_env.graph_environment(exported.graph)
    if env is None:
        return
    for symbol in list(env.var_to_range):
        low, high = shape_env.bounds(env, symbol)
        if low == 2 and shape_env.is_input(env, symbol):
            shape_env.set_bounds(env, symbol, 0, high)


# ---- errors ---------------------------------------------------------------------------------------------------------


def message(error: Exception) -> str:
    """What torch says, without its advice, and the line of the model."""
    text = str(error).strip()
    for noise in _EXPORT_NOISE:
        text = text.partition(noise)[0]
    raised = _RAISED_IN_DYNAMO.search(text)
    text = _DATA_DEPENDENT.sub(_in_plain_words, raised["message"] if raised else text).strip()
    return f"{text or type(error).__name__}{model_lines.at_line(error)}"


# What a function that Dynamo traces has raised, between what Dynamo says of it.
_RAISED_IN_DYNAMO = re.compile(r"got \w+\((?P<quote>[\"'])(?P<message>.*?)(?P=quote)\)", re.DOTALL)

_DATA_DEPENDENT = re.compile(
    r"Could not (?P<what>guard on|extract specialized \w+ from) data-dependent expression (?P<expression>.+?) "
    r"\(unhinted: .+?\)\.(?:\s*\(Size-like symbols: [^)]*\))?"
)


def _in_plain_words(found: re.Match[str]) -> str:
    known = "which is known only at run time"
    if found["what"] == "guard on":
        return (
            f"Python code of the model branches on a data-dependent value, {known} (torch asks {found['expression']})"
        )
    return f"Python code of the model needs a data-dependent value as a number, {known} ({found['expression']})"


def _export_hint(error: Exception, call: Call) -> str | None:
    """The way out of a failed trace; None where it is not known."""
    text = str(error)
    if "data-dependent" in text or "GuardOnDataDependent" in text or "vmap" in text:
        line = model_lines.of_error(error)
        if line is not None and line.text.startswith("assert "):
            return (
                "this assert on values of tensors cannot be captured: ask for one value (`(a | b).all()`), or write "
                "torch._assert_async(condition, message), which archives check in each call"
            )
        numbers = [repr(call.leaf_names()[leaf]) for leaf, kind in call.numbers.items() if kind != "int"]
        if numbers:
            return (
                "Python control flow cannot depend on floats, bools and values of tensors: use torch.where, or "
                f"remove {' or '.join(numbers)} from dynamic_shapes, which makes it a constant"
            )
        return (
            "Python control flow on the values of tensors cannot be captured: compute both sides and choose by "
            "torch.where, or bound a data-dependent size with torch._check"
        )
    if "Constraints violated" in text or "onstraint" in text:
        return "change dynamic_shapes as the message suggests, or make that dim static"
    if any(name in text for name in ("CondOp", "higher_order", "torch.cond", "while_loop", "combine_fn")):
        return (
            "functions of torch.cond return tensors of the same dtypes, and those of loops tensors of the shapes and "
            "dtypes that they take (docs/control_flow.md)"
        )
    return None


def _advice(module: torch.nn.Module, call: Call, dynamic_shapes: Any) -> str:
    """What to do about an error that nothing is known of: torch.export is tried alone, to see whose it is."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), (call.args, call.kwargs))
    try:
        with torch_quiet(), torch.no_grad():
            torch.export.export(module, args, kwargs or None, dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        return (
            f"torch.export.export(model, args) alone fails too ({type(error).__name__}{': ' if text else ''}{text}): "
            "rewrite this part of the model"
        )
    return "torch.export.export(model, args) alone captures this model: please report it"
