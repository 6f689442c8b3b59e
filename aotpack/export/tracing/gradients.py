"""Models that compute gradients themselves: `torch.autograd.grad`, `backward`, `torch.func.grad`, `vjp`, `jvp` and the
like inside of what is captured.

torch.export traces above autograd, where the backward is not seen: it fails or, worse, takes what it has not seen for
constants. Such a model is traced below autograd instead, by AOTAutograd, so that the graph holds the operators that
autograd calls. It holds none that are composed of others: those have been taken apart by then.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram

from aotpack.errors import CaptureError
from aotpack.export.ir import pytree_spec
from aotpack.export.torch_compat import places, pytree
from aotpack.export.torch_compat.export import is_functorch_wrapped
from aotpack.export.torch_compat.higher_order import HIGHER_ORDER_OPERATORS
from aotpack.export.torch_compat.modules import tensor_tables
from aotpack.export.torch_compat.patches import applied

_MARK = "_aotpack_computes_gradients"


def called_by(package: str) -> bool:
    """Whether a function of a package is on the stack."""
    frame = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(package):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class Seen:
    """Whether a derivative was taken: any, or one by going backward."""

    any = False
    backward = False


@contextlib.contextmanager
def watched() -> Iterator[Seen]:
    """While active, notes whether something takes a derivative.

    Raises:
        CaptureError: the gradient is added to the `.grad` of tensors. That is state of the tensors, which a program
            does not return.
    """
    seen = Seen()

    def noting(original: Any, *, backward: bool) -> Any:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            # torch takes derivatives of functions that it makes graphs of.
            if not called_by(HIGHER_ORDER_OPERATORS):
                seen.any = True
                seen.backward |= backward
            if kwargs.get("accumulate_grad"):
                raise CaptureError(
                    "the model calls backward(), which adds to the .grad of tensors",
                    hint="torch.autograd.grad(loss, tensors) returns the gradients instead; for those of the "
                    'parameters let the model return the loss, and capture it with mode="joint"',
                )
            return original(*args, **kwargs)

        return call

    with applied(
        {
            places.RUN_BACKWARD: functools.partial(noting, backward=True),
            places.ENTER_DUAL_LEVEL: functools.partial(noting, backward=False),
        }
    ):
        yield seen


def with_gradients(module: torch.nn.Module) -> torch.nn.Module:
    """The module over the same parameters, buffers and children that is called with gradients enabled.

    What it returns is cut from its history.
    """
    original = module.forward

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        with _buffers_in_place(other), torch.enable_grad():
            result = original(*args, **kwargs)
        pytree_spec.register_dataclasses(result)
        return pytree.tree_map_only(torch.Tensor, lambda t: t.detach() if t.requires_grad else t, result)

    other = copy.copy(module)
    # Its own dictionary: the forward is to be there only, and what is set in tracing is not to be lost in the copy.
    other.__dict__ = module.__dict__ | {"forward": forward, _MARK: True}
    return other


@contextlib.contextmanager
def _buffers_in_place(module: torch.nn.Module) -> Iterator[None]:
    """Writes the tensors that a call has put in the place of buffers into these: below autograd torch.export follows
    what is written in place alone.
    """
    tables = [tensor_tables(part)[1] for part in module.modules()]
    before = [dict(table) for table in tables]
    yield
    with torch.no_grad():
        for table, known in zip(tables, before, strict=True):
            for name, old in known.items():
                new = table.get(name)
                if old is None or new is None or new is old or (new.shape, new.dtype) != (old.shape, old.dtype):
                    continue
                old.copy_(new)
                table[name] = old


def takes_gradients(module: torch.nn.Module) -> bool:
    """Whether `with_gradients` made this module."""
    return _MARK in module.__dict__


def kept_wrapped(exported: ExportedProgram) -> bool:
    """Whether torch.export took operators under vmap as they were written, over tensors that exist there only."""
    values = pytree.tree_leaves([node.meta.get("val") for node in exported.graph.nodes])
    return any(isinstance(v, torch.Tensor) and is_functorch_wrapped(v) for v in values)
