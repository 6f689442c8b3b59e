"""Operators that take functions (torch.cond, while_loop, …), while a model is captured.

Wherever it meets one, torch makes graphs of its functions by Dynamo. Example calls need none: the functions are called
as they are. In a trace Dynamo must see none of the modes that we have on, because it would follow their Python code; the
graphs that it has made run under them.

Private interfaces touched (torch 2.11 to 2.13):
  torch._higher_order_ops.utils.setup_compilation_env   replaced while a model is traced
  torch._higher_order_ops.scan._maybe_compile_and_run_fn   replaced while example calls run
  torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG   set while a model is captured
  torch.overrides.{_len_torch_function_stack, _pop_mode, _push_mode}
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _len_torch_function_stack, _pop_mode, _push_mode

from aotpack.export.torch_compat import places, pytree
from aotpack.export.torch_compat.patches import always, applied

_OURS = "aotpack."
_traced: ContextVar[bool] = ContextVar("traced", default=False)


@contextlib.contextmanager
def functions_called() -> Iterator[None]:
    """While active, functions that operators take are called as they are, but for traces (`functions_made_graphs`).

    Dynamo would not trace them under modes that are none of torch's, and remember that for a later trace.
    """

    def environment(original: Any) -> Any:
        @contextlib.contextmanager
        def enter() -> Iterator[Any]:
            if _traced.get():
                # The fast path of transformer layers is for calls without modes.
                fast = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
                try:
                    with _modes_off() as modes, original() as backend:
                        yield _under(modes, backend) if modes else backend
                finally:
                    torch.backends.mha.set_fastpath_enabled(fast)
            else:
                with torch.compiler.set_stance("force_eager"):
                    yield "eager"

        return enter

    replacements = {
        places.HIGHER_ORDER_ENVIRONMENT: environment,
        places.RUN_SCAN: _scan_called,
        places.FLEX_NOT_COMPILED: always(True),
    }
    with applied(replacements):
        yield


@contextlib.contextmanager
def functions_made_graphs() -> Iterator[None]:
    """While active, and `functions_called` is, Dynamo traces them, without the modes of this package."""
    token = _traced.set(True)
    try:
        yield
    finally:
        _traced.reset(token)


def _scan_called(original: Any) -> Any:
    """A scan returns what its function returns, in containers; torch leaves it to Dynamo to put these back."""

    def run(scan: Any, function: functools.partial[Any], *operands: Any) -> Any:
        if _traced.get() or torch.compiler.is_dynamo_compiling():
            return original(scan, function, *operands)
        trees: list[pytree.TreeSpec] = []

        def combine(*args: Any) -> Any:
            result = function.keywords["combine_fn"](*args)
            trees.append(pytree.tree_structure(result))
            return result

        flat = original(scan, functools.partial(function.func, **{**function.keywords, "combine_fn": combine}), *operands)
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
    while _len_torch_function_stack() > 0:
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
