"""Models with asserts on values of tensors. Not in a file of tests, whose asserts pytest writes anew."""

from __future__ import annotations

import torch
from torch import Tensor

MESSAGE = "a constant of the file"


def plain(a: Tensor, b: Tensor) -> Tensor:
    assert a == b
    return a + b


def several_lines(a: Tensor, b: Tensor) -> Tensor:
    # fmt: off
    assert (
        a
        == b
    ), "several lines"
    # fmt: on
    return a + b


def of_a_name(a: Tensor, b: Tensor) -> Tensor:
    assert a == b, MESSAGE
    return a + b


def formatted(a: Tensor, b: Tensor) -> Tensor:
    assert a == b, f"{a} is not {b}"
    return a + b


def negated(a: Tensor, b: Tensor) -> Tensor:
    assert not a != b, "negated"  # noqa: SIM202
    return a + b


def conjunction(a: Tensor, b: Tensor) -> Tensor:
    assert a == b and not a > 9 and a.shape == b.shape, "both"
    return a + b


def one_element(a: Tensor, b: Tensor) -> Tensor:
    assert (a - b).reshape(1, 1) + 1, "an element that is not zero"
    return a + b


def by_function(a: Tensor, b: Tensor) -> Tensor:
    torch._assert((a == b).all(), "by a function")
    return a + b


def without_message(a: Tensor, b: Tensor) -> Tensor:
    torch._assert_async(a == b)
    return a + b


def in_a_comprehension(a: Tensor, b: Tensor) -> Tensor:
    def check(x: Tensor) -> Tensor:
        assert x == a, "inside"
        return x

    return sum(check(x) for x in (a, b))  # type: ignore[return-value]


def branch(a: Tensor) -> Tensor:
    if a > 0:
        return a
    return -a


def either(a: Tensor) -> Tensor:
    assert a > 3 or a < 0, "either"
    return a


def kept(a: Tensor) -> Tensor:
    c = not (a > 0)
    assert not c
    return a
