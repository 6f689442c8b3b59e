"""Asserts on values of tensors: what an archive checks in each call, and with which message it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpack.errors import CaptureError
from aotpack.export import aot_export
from tests.export.overrides import asserting

pytestmark = pytest.mark.torch

CASES: list[tuple[Callable[..., Any], str]] = [
    (asserting.plain, "assertion failed: a == b"),
    (asserting.several_lines, "several lines"),
    (asserting.of_a_name, asserting.MESSAGE),
    (asserting.formatted, "assertion failed: a == b"),
    (asserting.negated, "negated"),
    (asserting.conjunction, "both"),
    (asserting.one_element, "an element that is not zero"),
    (asserting.by_function, "by a function"),
    (asserting.without_message, "Expected Tensor with single nonzero value, but got zero"),
    (asserting.in_a_comprehension, "inside"),
]


@pytest.mark.parametrize(("function", "message"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_messages(function: Callable[..., Any], message: str) -> None:
    program = aot_export(function, (torch.tensor(3), torch.tensor(3)))
    asserts = [node for node in program.graph.nodes if node.target is torch.ops.aten._assert_async.msg]
    assert {node.args[1] for node in asserts} == {message}
    assert program.runnable()(torch.tensor(4), torch.tensor(4))[0] == 8
    with pytest.raises((RuntimeError, AssertionError)):
        program.runnable()(torch.tensor(3), torch.tensor(4))


@pytest.mark.parametrize("function", [asserting.branch, asserting.either, asserting.kept])
def test_control_flow_is_no_assert(function: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError, match="branches on a data-dependent value"):
        aot_export(function, (torch.tensor(5),))
