"""Fake tensors, made while a model is traced, that torch comes to in a roundabout way.

torch asks each parameter some eighty questions, and every one would go through the function modes of torch.export and
of this package, which answer none of them. To learn the layout of a batch norm in evaluation, it runs the eleven
operators of its decomposition, a hundredfold of the time that the answer takes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.dispatch import without_function_modes
from aotpack.export.torch_compat.fake_tensors import FakeTensor, decomposition_of
from aotpack.export.torch_compat.patches import always, applied

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_BATCH_NORM = torch.ops.aten._native_batch_norm_legit_no_training.default


@contextlib.contextmanager
def quick_fakes() -> Iterator[None]:
    """While active, fake parameters are made, and values described, unseen by function modes; batch norms in
    evaluation are not decomposed to learn the layout of their results.
    """
    with applied(
        {
            places.FAKE_PARAMETERS: _parameters_unseen,
            places.DESCRIBE_VALUE: _described_unseen,
            places.FAKE_DECOMPOSED: _all_but_batch_norm,
            places.FAKE_BATCH_NORM: always(_batch_norm),
        }
    ):
        yield


def _parameters_unseen(original: Any) -> Any:
    @functools.wraps(original)
    def fakify(fake_mode: Any, mod: torch.nn.Module) -> Any:
        # Classes of tensors have functions of their own, by which they are taken apart.
        if not all(type(tensor) in _PLAIN for tensor in (*mod.parameters(), *mod.buffers())):
            return original(fake_mode, mod)
        with without_function_modes():
            return original(fake_mode, mod)

    return fakify


def _described_unseen(original: Any) -> Any:
    @functools.wraps(original)
    def set_meta(proxy: Any, val: Any) -> Any:
        if type(val) is not FakeTensor:
            return original(proxy, val)
        with without_function_modes():
            return original(proxy, val)

    return set_meta


def _all_but_batch_norm(original: Any) -> Any:
    return lambda func: func is not _BATCH_NORM and original(func)


def _batch_norm(
    fake_mode: Any,
    func: Any,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    others = (running_mean, running_var, *(tensor for tensor in (weight, bias) if tensor is not None))
    with fake_mode:
        if _is_contiguous(input) and all(_describes(tensor, input) for tensor in others):
            return torch.empty_like(input), input.new_empty((0,)), input.new_empty((0,))
        found: tuple[Tensor, ...] = decomposition_of(func)(
            input, weight, bias, running_mean, running_var, momentum, eps
        )
        return found


def _is_contiguous(value: Tensor) -> bool:
    """Whether it has the strides of a new tensor, those of dims of one element among them."""
    step = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if type(size) is not int or size < 1 or stride != step:
            return False
        step *= size
    return value.dtype in (torch.float32, torch.float64) and value.layout == torch.strided


def _describes(tensor: Tensor, value: Tensor) -> bool:
    """Whether it is what eager accepts beside `value`: a number for each channel."""
    return tensor.dtype == value.dtype and tensor.device == value.device and tensor.shape == value.shape[1:2]
