"""Optimizers compute with Python numbers: step counts, learning rates, what follows from them. In a trace these are
tensors of rank 0 and dtype float64, which this mode lets stand where torch takes numbers alone.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.patches import applied


@contextlib.contextmanager
def numbers_as_tensors(inputs: Collection[Tensor]) -> Iterator[None]:
    """While active, tensors of rank 0 may stand for numbers in torch's functions and in those of `math`.

    `inputs` are values that each call passes. Optimizers ask whether a value is 0 to leave out what it has no effect
    on; for these the answer is that it is not, which computes the same.
    """

    def also_of_tensors(name: str) -> Callable[[Any], Any]:
        of_tensor = getattr(torch, name)

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def either(value: Any, *others: Any) -> Any:
                return of_tensor(value) if isinstance(value, Tensor) and not others else original(value, *others)

            return either

        return make

    with applied({f"math:{name}": also_of_tensors(name) for name in _MATH}), _NumbersAsTensors(inputs):
        yield


_MATH = ("sqrt", "exp", "log", "log2", "log10", "tanh")


class _NumbersAsTensors(TorchFunctionMode):
    def __init__(self, inputs: Collection[Tensor]) -> None:
        super().__init__()
        self._inputs = {id(tensor): tensor for tensor in inputs}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        answer = _COMPARISONS.get(func)
        if answer is not None and id(args[0]) in self._inputs and (len(args) == 1 or _is_zero(args[1])):
            return answer
        replacement = _WITH_NUMBERS.get(func)
        if replacement is not None:
            result = replacement(*args, **kwargs)
            if result is not NotImplemented:
                return result
        leaves, tree = pytree.tree_flatten((args, kwargs))
        if any(isinstance(leaf, Tensor) and leaf.dim() > 0 for leaf in leaves):
            args, kwargs = pytree.tree_unflatten([_computed_once(leaf) for leaf in leaves], tree)
        return func(*args, **kwargs)


def _is_zero(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == 0


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 0


def _computed_once(value: Any) -> Any:
    """A number, so that generated code computes it once, not again for each element of what it is combined with:
    TorchInductor has the argument of this view in memory.
    """
    return torch.as_strided(value, (), ()) if _is_number(value) and value.is_floating_point() else value


_COMPARISONS: Mapping[Any, bool] = {
    Tensor.ne: True,
    Tensor.__ne__: True,
    Tensor.eq: False,
    Tensor.__eq__: False,
    Tensor.__bool__: True,
}


def _scaled(value: Any, like: Tensor) -> Tensor:
    return _computed_once(value).to(like.dtype)  # type: ignore[no-any-return]


def _with_alpha(plain: Callable[..., Any]) -> Callable[..., Any]:
    def call(input: Tensor, other: Any, *, alpha: Any = 1, **others: Any) -> Any:
        if not _is_number(alpha):
            return NotImplemented
        return plain(input, _scaled(alpha, input) * other, **others)

    return call


def _with_value(plain: Callable[..., Any], combined: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(input: Tensor, first: Tensor, second: Tensor, *, value: Any = 1) -> Any:
        if not _is_number(value):
            return NotImplemented
        return plain(input, combined(_scaled(value, input) * first, second))

    return call


def _with_weight(lerp: Callable[..., Any]) -> Callable[..., Any]:
    def call(input: Tensor, end: Tensor, weight: Any) -> Any:
        return lerp(input, end, _scaled(weight, input)) if _is_number(weight) else NotImplemented

    return call


_WITH_NUMBERS: Mapping[Any, Callable[..., Any]] = {
    torch.add: _with_alpha(torch.add),
    Tensor.add: _with_alpha(Tensor.add),
    Tensor.add_: _with_alpha(Tensor.add_),
    torch.sub: _with_alpha(torch.sub),
    Tensor.sub: _with_alpha(Tensor.sub),
    Tensor.sub_: _with_alpha(Tensor.sub_),
    torch.addcmul: _with_value(torch.add, torch.mul),
    Tensor.addcmul: _with_value(torch.add, torch.mul),
    Tensor.addcmul_: _with_value(Tensor.add_, torch.mul),
    torch.addcdiv: _with_value(torch.add, torch.div),
    Tensor.addcdiv: _with_value(torch.add, torch.div),
    Tensor.addcdiv_: _with_value(Tensor.add_, torch.div),
    torch.lerp: _with_weight(torch.lerp),
    Tensor.lerp: _with_weight(Tensor.lerp),
    Tensor.lerp_: _with_weight(Tensor.lerp_),
}
