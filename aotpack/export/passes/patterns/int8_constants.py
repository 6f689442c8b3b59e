"""Constants of int8 products, computed from those of the model when the archive is packed.

Recipes: functions of named tensors. Passes see no values, so that nothing here may depend on them but by arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.int8_packing import Runs, pack

Tensors = Mapping[str, Tensor]

_INFINITY = float("inf")


@dataclass(frozen=True)
class Int8Product:
    """What the constants of a product are made for.

    Attributes:
        runs: the layout of the weight.
        moves: what brings the weight into [oc, cg, *kernel], beginning with its numbers as they are stored.
        signed: whether activations are int8.
        middle, residual, result: dtypes of what there is of these; None where there is none. Floats have no `result`.
        limits, limits_after: low and high before and after the sum with the residual.
    """

    runs: Runs
    moves: tuple[tuple[Callable[..., Tensor], tuple[Any, ...]], ...]
    signed: bool
    middle: torch.dtype | None
    residual: torch.dtype | None
    result: torch.dtype | None
    limits: tuple[float | None, float | None]
    limits_after: tuple[float | None, float | None]

    def dense(self, tensors: Tensors) -> tuple[Tensor, Tensor]:
        """The weight as int8 [oc, cg, *kernel], and its zero points as int32 [oc].

        Where all differences from the zero points fit int8, they are the weight, and the zero points are 0.
        """
        stored = tensors["weight"]
        numbers = stored.to(torch.int16)
        zero = tensors["weight_zero"].to(torch.int16) if "weight_zero" in tensors else numbers.new_zeros(())
        spread = self._moved(zero.expand(numbers.shape))
        numbers = self._moved(numbers)
        centred = numbers - spread
        middle = 128 if stored.dtype == torch.uint8 else 0
        fits = ((centred >= -128) & (centred <= 127)).all()
        weight = torch.where(fits, centred, numbers - middle).to(torch.int8)
        zeros = torch.where(fits, torch.zeros_like(spread), spread - middle).flatten(1)[:, 0]
        return weight, zeros.to(torch.int32)

    def packed(self, tensors: Tensors) -> Tensor:
        return pack(self.dense(tensors)[0], self.runs)

    def scales(self, tensors: Tensors) -> Tensor:
        """Of an activation times a weight, by output channel."""
        weight = tensors["weight"]
        scales: Tensor = self._moved(tensors["weight_scale"].expand(weight.shape)).flatten(1)[:, 0]
        return tensors["x_scale"].reshape(()) * scales

    def channels(self, tensors: Tensors) -> Tensor:
        """int32 [4, columns], as csrc/module/declare/int8.h has them."""
        weight, zeros = self.dense(tensors)
        scales = self.scales(tensors)
        sums = (
            (weight.to(torch.int64) - zeros.to(torch.int64).reshape(-1, *([1] * (weight.dim() - 1)))).flatten(1).sum(1)
        )
        init = -self._x_zero(tensors).to(torch.int64) * sums
        first = tensors["middle_scale"] if self.middle is not None else self._last_scale(tensors)
        factor = scales / first
        offset = torch.zeros_like(scales)
        if "bias" in tensors:
            bias = tensors["bias"].reshape(-1)
            # Biases are whole multiples of the scales as a rule: these are added to the sums.
            whole = torch.round(bias.to(torch.float64) / scales.to(torch.float64))
            error = (whole * scales.to(torch.float64) - bias.to(torch.float64)).abs()
            exact = (error <= 1e-6 * bias.to(torch.float64).abs()) & (whole.abs() < 2.0**30)
            init = init + torch.where(exact, whole, torch.zeros_like(whole)).to(torch.int64)
            offset = torch.where(exact, offset, bias / first)
        rows = (init.to(torch.int32), factor.view(torch.int32), offset.view(torch.int32), zeros)
        return torch.stack([self.runs.by_column(row) for row in rows])

    def numbers(self, tensors: Tensors) -> Tensor:
        """`limits`, as csrc/module/declare/int8.h has them."""
        last = self._last_scale(tensors)
        middle = tensors["middle_scale"].reshape(()) if self.middle is not None else last
        before = (
            self._limits(self.limits, middle, _zero(tensors, "middle_zero"), self.middle)
            if self.residual is not None
            else self._limits(self.limits, last, _zero(tensors, "result_zero"), self.result)
        )
        after = self._limits(self.limits_after, last, _zero(tensors, "result_zero"), self.result)
        gain = tensors["residual_scale"].reshape(()) / last if self.residual is not None else torch.ones(())
        keep, residual_zero = torch.ones(()), _zero(tensors, "residual_zero")
        if self.middle is not None:
            keep = tensors["kept_scale"].reshape(()) / last
            # The two zero points of what is in the middle are the same, as a rule.
            residual_zero = residual_zero - (_zero(tensors, "middle_zero") - _zero(tensors, "kept_zero")) * keep / gain
        values = (
            self._x_zero(tensors).to(torch.float32),
            _zero(tensors, "result_zero"),
            *before,
            torch.full((), float(self.middle is not None)),
            keep,
            gain,
            residual_zero,
            *after,
            (self.dense(tensors)[1] != 0).any().to(torch.float32),
        )
        return torch.stack(values)

    def _moved(self, weight: Tensor) -> Tensor:
        for move, arguments in self.moves:
            weight = move(weight, *arguments)
        return weight.reshape(self.runs.groups * self.runs.outputs, self.runs.inputs, *self.runs.kernel)

    def _x_zero(self, tensors: Tensors) -> Tensor:
        zero = _zero(tensors, "x_zero")
        return (zero + 128 if self.signed else zero).to(torch.int32)

    def _last_scale(self, tensors: Tensors) -> Tensor:
        return tensors["result_scale"].reshape(()) if self.result is not None else torch.ones(())

    def _limits(
        self, limits: tuple[float | None, float | None], scale: Tensor, zero: Tensor, dtype: torch.dtype | None
    ) -> tuple[Tensor, Tensor]:
        """In units of the scale; whole ones, from the zero point on, where the limited value is quantized."""
        low, high = (
            (torch.full((), outer if limit is None else limit) / scale)
            for limit, outer in zip(limits, (-_INFINITY, _INFINITY), strict=True)
        )
        if dtype is None:
            return low, high
        info = torch.iinfo(dtype)
        least, most = info.min - zero, info.max - zero
        return (
            torch.minimum(torch.maximum(torch.round(low), least), most),
            torch.maximum(torch.minimum(torch.round(high), most), least),
        )


def _zero(tensors: Tensors, name: str) -> Tensor:
    return tensors[name].reshape(()).to(torch.float32) if name in tensors else torch.zeros(())


@dataclass(frozen=True)
class Recipe:
    """One of the constants of a product, of tensors in the order of `names`."""

    product: Int8Product
    which: str
    names: tuple[str, ...]

    def __call__(self, *tensors: Tensor) -> Tensor:
        result: Tensor = getattr(self.product, self.which)(dict(zip(self.names, tensors, strict=True)))
        return result
