"""Operators whose results are not determined by their arguments, and what is checked of them instead.

Each has its reason. What is not listed here must equal eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests.conformance import properties
from tests.conformance.compare import Wrong, check_meta
from tests.conformance.program import Call
from tests.conformance.task import FORWARD

Check = Callable[[Call, Sequence[torch.Tensor], Sequence[Any], Sequence[Any]], None]


@dataclass(frozen=True)
class Expectation:
    """What is checked where results differ from eager's.

    Attributes:
        reason: why they may.
        check: raises Wrong when (call, inputs, actual, expected) do not fit. Shapes and dtypes were compared before.
        when: `always`: results are not compared with eager's at all. `differs`: where they are not eager's. `random`:
            if eager's own differ from seed to seed, otherwise they must be eager's.
    """

    reason: str
    check: Check
    when: str = "differs"


def expectation(name: str, mode: str = FORWARD) -> Expectation | None:
    """What holds of an operator, by its name in the database; or of a module in training mode, which may drop elements.

    Of gradients less is known: those of random operators are random, all others must equal eager's. The database makes
    functions of what is not unique that are, before they are differentiated.
    """
    if name.endswith(".train"):
        return Expectation(_RANDOM, _finite, "random")
    known = _KNOWN.get(name)
    if mode == FORWARD or known is None:
        return known
    return Expectation(known.reason, _finite, "random") if known.reason in (_RANDOM, _DRAWN) else None


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


def _within(limits: Callable[[Call, Sequence[torch.Tensor]], tuple[float, float]]) -> Check:
    """All elements in a closed interval, which the arguments may say."""

    def check(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
        low, high = limits(call, inputs)
        for i, a in enumerate(actual):
            if a.numel() and not (bool((a.double() >= low).all()) and bool((a.double() <= high).all())):
                raise Wrong(f"result {i}: outside [{low}, {high}]")

    return check


def _uniform(call: Call, inputs: Sequence[torch.Tensor]) -> tuple[float, float]:
    _, args, kwargs = call.case.arguments(inputs)
    numbers = [*args, *kwargs.values()]
    return (float(numbers[0]), float(numbers[1])) if len(numbers) > 1 else (0.0, 1.0)


def _integers(call: Call, inputs: Sequence[torch.Tensor]) -> tuple[float, float]:
    """Of randint(low, high, …) and randint(high, …)."""
    input, args, kwargs = call.case.arguments(inputs)
    numbers = [x for x in (input, *args) if isinstance(x, (int, float)) and not isinstance(x, bool)]
    low, high = (0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
    return float(kwargs.get("low", low)), float(kwargs.get("high", high)) - 1


def _categories(call: Call, inputs: Sequence[torch.Tensor]) -> tuple[float, float]:
    return 0.0, float(inputs[0].shape[-1] - 1)


def _either(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """What a dropout leaves of each element: nothing, or the element over the probability to keep it."""
    _, args, kwargs = call.case.arguments(inputs)
    numbers = [x for x in args if isinstance(x, float)]
    keep = 1.0 - float(kwargs.get("p", numbers[0] if numbers else 0.5))
    given, found = inputs[0].double(), actual[0].double()
    scaled = given / keep if keep else torch.zeros_like(given)
    if not bool((torch.isclose(found, scaled, rtol=2e-2, atol=1e-5) | (found == 0)).all()):
        raise Wrong("an element is neither 0 nor the input's over the probability to keep it")


def _zero_or_one(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    if not bool(((actual[0] == 0) | (actual[0] == 1)).all()):
        raise Wrong("an element is neither 0 nor 1")


_VECTORS = "singular and eigenvectors are unique up to a factor"
_SIGNS = "QR is unique up to signs"
_DRAWN = "a random matrix is drawn"
_TIES = "the order of equal elements is open"

_INFINITY = float("inf")

_KNOWN: dict[str, Expectation] = {
    **{
        name: Expectation(_UNINITIALISED, _anything, "always")
        for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
    },
    "bernoulli": Expectation(_RANDOM, _zero_or_one, "always"),
    "uniform": Expectation(_RANDOM, _within(_uniform), "always"),
    "exponential": Expectation(_RANDOM, _within(lambda call, inputs: (0.0, _INFINITY)), "always"),
    "log_normal": Expectation(_RANDOM, _within(lambda call, inputs: (0.0, _INFINITY)), "always"),
    "geometric": Expectation(_RANDOM, _within(lambda call, inputs: (1.0, _INFINITY)), "always"),
    "randint": Expectation(_RANDOM, _within(_integers), "always"),
    "randint_like": Expectation(_RANDOM, _within(_integers), "always"),
    "multinomial": Expectation(_RANDOM, _within(_categories), "always"),
    **{
        name: Expectation(_RANDOM, _either, "random")
        for name in ("nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d")
    },
    **{
        name: Expectation(_RANDOM, _finite, "always")
        for name in (
            "cauchy",
            "normal",
            "normal.in_place",
            "normal.number_mean",
            "rand_like",  # The database calls torch.randn_like.
            "randn",
            "randn_like",
        )
    },
    **{
        name: Expectation(_RANDOM, _finite, "random")
        for name in (
            "nn.functional.alpha_dropout",
            "nn.functional.feature_alpha_dropout.with_train",
            "nn.functional.fractional_max_pool2d",
            "nn.functional.fractional_max_pool3d",
            "nn.functional.multi_head_attention_forward",
            "nn.functional.rrelu",
            "nn.functional.scaled_dot_product_attention",
        )
    },
    **{name: Expectation(_VECTORS, properties.svd) for name in ("svd", "linalg.svd")},
    "linalg.eigh": Expectation(_VECTORS, properties.eigh),
    "linalg.eig": Expectation("eigenvalues have no order, eigenvectors a free factor", properties.eig),
    "linalg.eigvals": Expectation("eigenvalues have no order", properties.eigenvalues),
    **{name: Expectation(_SIGNS, properties.qr) for name in ("qr", "linalg.qr")},
    **{name: Expectation(_TIES, properties.order) for name in ("sort", "argsort", "topk")},
    **{
        name: Expectation("any of equal elements may be the one", properties.chosen)
        for name in ("median", "nanmedian", "mode", "kthvalue")
    },
    **{
        f"nn.functional.max_unpool{axes}d": Expectation(
            "of elements that are written to one place any may stay", properties.written_once
        )
        for axes in (1, 2, 3)
    },
    "svd_lowrank": Expectation(_DRAWN, properties.svd_lowrank),
    "pca_lowrank": Expectation(_DRAWN, properties.low_rank),
}
