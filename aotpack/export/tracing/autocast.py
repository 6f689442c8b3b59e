"""Autocast around a capture or a build."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def autocast_inside(module: torch.nn.Module) -> Iterator[None]:
    """Makes an autocast that is active here part of the module's forward meanwhile.

    torch.export records the casts of an autocast that it meets while it traces, but not those of one around it.
    """
    if not torch.is_autocast_enabled("cpu"):
        yield
        return
    dtype = torch.get_autocast_dtype("cpu")
    forward = module.forward
    own = "forward" in vars(module)

    @functools.wraps(forward)
    def under_autocast(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", dtype=dtype):
            return forward(*args, **kwargs)

    module.forward = under_autocast
    try:
        with no_autocast():
            yield
    finally:
        if own:
            module.forward = forward
        else:
            del module.forward


def no_autocast() -> contextlib.AbstractContextManager[Any]:
    """What passes and code generation compute keeps its dtypes."""
    return torch.autocast("cpu", enabled=False)
