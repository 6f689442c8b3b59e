"""Operators that take functions (torch.cond, while_loop, …), while a model is captured.

Wherever it meets one, in eager calls too, torch makes graphs of its functions by Dynamo. Example calls need none: there
the operators are what their documentation says, in Python, so that whatever watches a call sees all of it. In a trace
Dynamo must see none of the modes that we have on, because it would follow their Python code; the graphs that it has
made run under them.

Private interfaces touched (torch 2.11 to 2.13):
  torch._higher_order_ops.while_loop.while_loop
  torch._higher_order_ops.utils.setup_compilation_env   replaced while a model is captured
  torch._higher_order_ops.{cond.cond_op, while_loop.while_loop_op, scan.scan_op, map.map_impl}   replaced while example
    calls run, and called by their names
  torch._higher_order_ops.scan._maybe_compile_and_run_fn   replaced while example calls run
  torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG   set while a model is captured
  torch.overrides.{_len_torch_function_stack, _pop_mode, _push_mode}
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import overrides
from torch._higher_order_ops.while_loop import while_loop
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode

from aotpack.export.torch_compat import places, pytree
from aotpack.export.torch_compat.derivatives import dense_gradients, drawing_nothing
from aotpack.export.torch_compat.fake_tensors import FakeTensor
from aotpack.export.torch_compat.patches import always, applied
from aotpack.export.torch_compat.scan_gradients import WHOLE, ScanGradients
from aotpack.export.torch_compat.symbolic_shapes import products_of_two

__all__ = [
    "HIGHER_ORDER_OPERATORS",
    "cond_of",
    "functions_called",
    "functions_made_graphs",
    "scan_of",
    "while_loop",
    "while_loop_of",
]

HIGHER_ORDER_OPERATORS = "torch._higher_order_ops"

_OURS = "aotpack."


def cond_of(pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
    """`torch.cond` of functions that read nothing but their operands: they are traced as they run, without Dynamo.

    Like the two below, it looks the operator up where example calls have another one.
    """
    return _current(places.COND)(pred, true_fn, false_fn, tuple(operands))


def while_loop_of(cond_fn: Any, body_fn: Any, carried: Sequence[Any], operands: Sequence[Any]) -> Any:
    """`while_loop` of such functions: `(*carried, *operands)`."""
    return _current(places.WHILE_LOOP)(cond_fn, body_fn, tuple(carried), tuple(operands))


def scan_of(function: Any, init: Sequence[Any], xs: Sequence[Any], operands: Sequence[Any]) -> Any:
    """`scan` of such a function, `(*carried, *slices, *operands)`, which returns a flat list."""
    return _current(places.SCAN)(function, list(init), list(xs), tuple(operands))


def _current(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(sys.modules[module], name)


@contextlib.contextmanager
def functions_called() -> Iterator[None]:
    """While active, operators call their functions, without Dynamo.

    Under modes that are none of torch's it does not trace functions, and remembers that for a later trace.
    """
    replacements = {
        places.HIGHER_ORDER_ENVIRONMENT: always(_without_dynamo),
        places.RUN_SCAN: _scan_called,
        **{place: always(function) for place, function in _IN_PYTHON.items()},
    }
    with applied(replacements):
        yield


@contextlib.contextmanager
def functions_made_graphs() -> Iterator[None]:
    """While active, Dynamo traces functions that operators take without the modes of this package."""

    def environment(original: Any) -> Any:
        @contextlib.contextmanager
        def enter() -> Iterator[Any]:
            # The fast path of transformer layers is for calls without modes.
            fast = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
            try:
                with _modes_off() as modes, original() as backend:
                    yield _under(modes, backend) if modes else backend
            finally:
                torch.backends.mha.set_fastpath_enabled(fast)

        return enter

    replacements = {
        places.HIGHER_ORDER_ENVIRONMENT: environment,
        places.FLEX_NOT_COMPILED: always(True),
        places.COND_GRADIENTS: dense_gradients,
        places.COND_BACKWARD: drawing_nothing,
        places.MAP_BACKWARD: drawing_nothing,
        places.PRODUCT_OF_SIZES: products_of_two,
        places.SCAN_GRADIENTS: always(ScanGradients),
        places.SCAN_PARTITIONER: always(WHOLE),
    }
    with applied(replacements):
        yield


@contextlib.contextmanager
def _without_dynamo() -> Iterator[str]:
    with torch.compiler.set_stance("force_eager"):
        yield "eager"


def _cond(pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any] = ()) -> Any:
    if isinstance(pred, FakeTensor):
        return torch.ops.higher_order.cond(pred, true_fn, false_fn, operands)
    taken, other = (true_fn, false_fn) if pred else (false_fn, true_fn)
    result = taken(*operands)
    if not torch.is_grad_enabled():
        return result
    # What the other function alone reads has a gradient of zeros.
    with contextlib.suppress(Exception):
        leaves = _leaves_read(pytree.tree_leaves(other(*operands)))
        return pytree.tree_map_only(torch.Tensor, lambda value: _linked(value, leaves), result)
    return result


def _leaves_read(results: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors that gradients of `results` are computed for."""
    stack = [value.grad_fn for value in results if isinstance(value, torch.Tensor)]
    seen: dict[Any, None] = {}
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen[node] = None
            stack += [function for function, _ in node.next_functions]
    return [node.variable for node in seen if hasattr(node, "variable")]


def _linked(value: torch.Tensor, leaves: Sequence[torch.Tensor]) -> torch.Tensor:
    """The same value, which depends on `leaves` by sums of none of their elements."""
    for leaf in leaves if value.is_floating_point() else ():
        value = value + leaf.reshape(-1)[:0].sum().to(value.dtype)
    return value


def _while_loop(cond_fn: Any, body_fn: Any, carried: Sequence[Any], additional: Sequence[Any] = ()) -> Any:
    values = tuple(carried)
    if any(isinstance(value, FakeTensor) for value in (*values, *additional)):
        return torch.ops.higher_order.while_loop(cond_fn, body_fn, values, tuple(additional))
    while cond_fn(*values, *additional):
        values = tuple(body_fn(*values, *additional))
    return values


def _scan(combine_fn: Any, init: Sequence[Any], xs: Sequence[Any], additional_inputs: Sequence[Any] = ()) -> Any:
    carry, results = list(init), []
    for i in range(xs[0].shape[0]):
        flat = pytree.tree_leaves(combine_fn(*carry, *(x[i] for x in xs), *additional_inputs))
        carry = list(flat[: len(carry)])
        results.append(flat[len(carry) :])
    return (*carry, *(None if each[0] is None else torch.stack(each) for each in zip(*results, strict=True)))


def _map(f: Any, xs: Sequence[Any], pos_args: Sequence[Any] = ()) -> Any:
    results = [f(*(x[i] for x in xs), *pos_args) for i in range(xs[0].shape[0])]
    return pytree.tree_map(lambda *values: None if values[0] is None else torch.stack(values), *results)


_IN_PYTHON = {places.COND: _cond, places.WHILE_LOOP: _while_loop, places.SCAN: _scan, places.MAP: _map}


def _scan_called(original: Any) -> Any:
    """A scan returns what its function returns, in containers; torch leaves it to Dynamo to put these back."""

    def run(scan: Any, function: functools.partial[Any], *operands: Any) -> Any:
        trees: list[pytree.TreeSpec] = []

        def combine(*args: Any) -> Any:
            result = function.keywords["combine_fn"](*args)
            trees.append(pytree.tree_structure(result))
            return result

        flat = original(
            scan, functools.partial(function.func, **{**function.keywords, "combine_fn": combine}), *operands
        )
        return pytree.tree_unflatten(flat, trees[0])

    return run


@contextlib.contextmanager
def _modes_off() -> Iterator[list[TorchFunctionMode]]:
    """While active, our function modes are off; these, the outermost first."""
    stack = _popped()
    ours = [mode for mode in stack if type(mode).__module__.startswith(_OURS)]
    for mode in stack:
        if mode not in ours:
            _push_mode(mode)
    try:
        yield ours
    finally:
        _popped()
        for mode in stack:
            _push_mode(mode)


def _popped() -> list[TorchFunctionMode]:
    modes: list[TorchFunctionMode] = []
    count: Any = vars(overrides)["_len_torch_function_stack"]
    while count() > 0:
        modes.append(_pop_mode())
    return modes[::-1]


def _under(modes: Sequence[TorchFunctionMode], backend: Callable[..., Any]) -> Callable[..., Any]:
    """The backend of Dynamo whose graphs run under these modes."""

    def compiled(graph_module: Any, inputs: Any, **options: Any) -> Callable[..., Any]:
        run = backend(graph_module, inputs, **options)

        def call(*args: Any, **kwargs: Any) -> Any:
            with contextlib.ExitStack() as stack:
                for mode in modes:
                    stack.enter_context(mode)
                return run(*args, **kwargs)

        return call

    return compiled
