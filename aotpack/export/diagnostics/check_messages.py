"""The checks of a model (`torch._check`) with their messages.

torch.export keeps the conditions and drops the messages. They are noted while a model is traced.

Interfaces of torch used, none of them documented (2.11 to 2.13): SymBool.node, and of a node expr, shape_env
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import sympy
import torch

from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patches import applied
from aotpack.export.torch_compat.symbolic_shapes import ShapeEnv, canonicalize_bool_expr

_MESSAGES: WeakKeyDictionary[ShapeEnv, dict[sympy.Basic, str]] = WeakKeyDictionary()

# torch checks much itself; some of its messages speak of its symbols.
_SYMBOL = re.compile(r"\b[suz]+\d+\b")


@contextlib.contextmanager
def messages_noted() -> Iterator[None]:
    """While active, the messages of checks over symbolic sizes are kept, for `messages`."""
    with applied({places.CHECK_WITH: _noting}):
        yield


def _noting(original: Any) -> Any:
    @functools.wraps(original)
    def note(error_type: Any, condition: Any, message: Callable[[], Any] | None) -> Any:
        if isinstance(condition, torch.SymBool) and callable(message):
            node = condition.node
            # A message is about the failure: it may ask for values that there are none of yet.
            with contextlib.suppress(Exception):
                text = str(message())
                if not _SYMBOL.search(text):
                    _MESSAGES.setdefault(node.shape_env, {}).setdefault(node.expr, text)
        return original(error_type, condition, message)

    return note


def messages(env: ShapeEnv | None) -> Mapping[sympy.Basic, str]:
    """By condition, the model's messages; the first where there are several."""
    return {} if env is None else _MESSAGES.get(env, {})


def condition_key(condition: Any) -> str:
    """The same text for conditions that are written differently: `u0 >= 0` and `0 <= u0`."""
    return str(canonicalize_bool_expr(condition))
