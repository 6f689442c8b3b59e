"""Convolutions of float16 in the example call: computed in single precision.

PyTorch has fast ones for processors with float16 instructions alone. Elsewhere a single call of an image model would
take minutes of a build. Sums of float16 convolutions are computed in single precision either way.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.dispatch import FollowingMode

aten = torch.ops.aten

# With the position of the input. Those of volumes are left alone: their results would lie otherwise in memory.
_CONVOLUTIONS = {aten.convolution.default: 0, aten.convolution_backward.default: 1}


def half_convolutions(tensors: Iterable[torch.Tensor]) -> AbstractContextManager[Any]:
    """While active, convolutions of float16 are fast, where a model or its arguments have tensors of that dtype."""
    return _InSinglePrecision() if any(t.dtype == torch.float16 for t in tensors) else nullcontext()


class _InSinglePrecision(FollowingMode):
    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        position = _CONVOLUTIONS.get(func)
        if position is None or args[position].dtype != torch.float16 or args[position].ndim > 4:
            return func(*args, **kwargs)
        result = func(*_in(torch.float32, torch.float16, args), **kwargs)
        return _in(torch.float16, torch.float32, result)


def _in(dtype: torch.dtype, other: torch.dtype, values: Any) -> Any:
    """The values, with tensors of another dtype in `dtype`."""
    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(dtype) if t.dtype == other else t, values)
