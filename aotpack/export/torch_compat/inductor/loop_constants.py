"""What a loop carries is no constant after the loop.

The sizes of a graph are computed with tensors without memory, of which small ones know their value as long as they are
computed from constants. A loop is computed by one step: a counter that begins with the constant 0 would be the constant
1 after the loop, and each size that is read from it 1.

Private interfaces touched (torch 2.11 to 2.13):
  torch._higher_order_ops.while_loop.{while_loop_op, while_loop_stack_output_op}.python_key_table   replaced while
  torch._higher_order_ops.scan.scan_op.python_key_table                                              generating
  torch._subclasses.fake_tensor.FakeTensor.constant
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patches import applied


@contextlib.contextmanager
def loops_without_constants() -> Iterator[None]:
    """While active, loops compute without the values of the constants that they begin with."""
    with applied(
        {
            places.WHILE_LOOP_SIZES: _forgetting(2),
            places.WHILE_LOOP_STACK_SIZES: _forgetting(2),
            places.SCAN_SIZES: _forgetting(1),
        }
    ):
        yield


def _forgetting(position: int) -> Callable[[Any], Any]:
    """For the implementation of a loop whose carried values are its argument at this position, behind the mode."""

    def make(original: Any) -> Any:
        def run(mode: Any, *args: Any, **kwargs: Any) -> Any:
            given = list(args)
            with mode:
                given[position] = type(given[position])(_without_value(value) for value in given[position])
            return original(mode, *given, **kwargs)

        return run

    return make


def _without_value(value: Any) -> Any:
    """A tensor that holds its elements is a constant, too."""
    if not isinstance(value, torch.Tensor) or (isinstance(value, FakeTensor) and value.constant is None):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
