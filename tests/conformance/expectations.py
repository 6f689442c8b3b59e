"""Operators whose results are not determined by their arguments, and what is checked of them instead.

Each has its reason. What is not listed here must equal eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests.conformance.compare import Wrong, check_meta
from tests.conformance.program import Call

Check = Callable[[Call, Sequence[torch.Tensor], Sequence[Any], Sequence[Any]], None]


@dataclass(frozen=True)
class Expectation:
    """What is checked where results differ from eager's.

    Attributes:
        reason: why they may.
        check: raises Wrong when (call, inputs, actual, expected) do not fit. Shapes and dtypes were compared before.
    """

    reason: str
    check: Check


def expectation(name: str) -> Expectation | None:
    """What holds of an operator, by its name in the database."""
    return _KNOWN.get(name)


def check(known: Expectation, call: Call, inputs: Sequence[Any], actual: Sequence[Any], expected: Sequence[Any]) -> str:
    """The rule's name.

    Raises:
        Wrong: the results break it.
    """
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if isinstance(e, torch.Tensor):
            check_meta(i, a, e)
    known.check(call, inputs, actual, expected)
    return known.reason


# ---- random numbers -------------------------------------------------------------------------------------------------

_RANDOM = "random"
_UNINITIALISED = "uninitialised memory"


def _anything(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """Shapes and dtypes alone."""


def _finite(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """Numbers where eager has numbers."""
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if isinstance(e, torch.Tensor) and bool(e.isfinite().all()) and not bool(a.isfinite().all()):
            raise Wrong(f"result {i}: not finite")


def _between(low: float, high: float) -> Check:
    def check(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
        for i, a in enumerate(actual):
            if a.numel() and not (bool((a.double() >= low).all()) and bool((a.double() <= high).all())):
                raise Wrong(f"result {i}: outside [{low}, {high}]")

    return check


_KNOWN: dict[str, Expectation] = {
    **{
        name: Expectation(_UNINITIALISED, _anything)
        for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
    },
    **{name: Expectation(_RANDOM, _between(0, 1)) for name in ("rand_like", "bernoulli")},
    **{
        name: Expectation(_RANDOM, _finite)
        for name in (
            "cauchy",
            "exponential",
            "geometric",
            "log_normal",
            "normal",
            "normal.in_place",
            "normal.number_mean",
            "randn",
            "randn_like",
            "randint",
            "randint_like",
            "uniform",
            "multinomial",
            "nn.functional.alpha_dropout",
            "nn.functional.dropout",
            "nn.functional.dropout2d",
            "nn.functional.dropout3d",
            "nn.functional.feature_alpha_dropout.with_train",
            "nn.functional.fractional_max_pool2d",
            "nn.functional.fractional_max_pool3d",
            "nn.functional.multi_head_attention_forward",
            "nn.functional.rrelu",
            "nn.functional.scaled_dot_product_attention",
        )
    },
}
