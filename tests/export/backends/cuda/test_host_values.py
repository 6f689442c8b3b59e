"""Which numbers of a program for a GPU stay on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from aotpack.export import aot_export
from aotpack.export.backends.cuda.host_values import HostValues
from aotpack.export.ir.regions import all_nodes, calls_graphs

pytestmark = pytest.mark.torch


def start() -> Tensor:
    return torch.zeros((), dtype=torch.int64)


def counted(x: Tensor, n: Tensor) -> Any:
    rows = x.shape[0]
    return while_loop(lambda i, y: (i < rows) & (i != 7), lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))[1]


def limited_by_data(x: Tensor, n: Tensor) -> Any:
    return while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 2), (start(), x))[1]


def counter_in_a_loop_of_the_device(x: Tensor, n: Tensor) -> Any:
    """The device ends the outer loop; the branch and the loop inside read its counter alone."""

    def step(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.cond(i % 2 == 0, lambda y: y * 2, lambda y: y - 1, (y,))
        return i + 1, while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z + 1), (start(), y))[1]

    return while_loop(lambda i, y: i < n, step, (start(), x))[1]


def carried_from_the_device(x: Tensor, n: Tensor) -> Any:
    """The counter becomes a value of the device in the step."""
    return while_loop(lambda i, y: i < 4, lambda i, y: (i + n, y * 2), (start(), x))[1]


def two_counters(x: Tensor, n: Tensor) -> Any:
    """One decides; the other is only computed with."""
    return while_loop(
        lambda i, j, y: i < 4, lambda i, j, y: (i + 1, j + 1, y * j), (start(), torch.ones((), dtype=torch.int64), x)
    )[2]


def chosen_by_the_host(x: Tensor, n: Tensor) -> Any:
    """A branch on a size returns the number that a loop ends at."""
    limit = torch.cond(x.shape[0] > 2, lambda a: a + 3, lambda a: a + 1, (start(),))
    return while_loop(lambda i, y: i < limit, lambda i, y: (i + 1, y * 2), (start(), x))[1]


def scanned(x: Tensor, n: Tensor) -> Any:
    def step(i: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, torch.cond(i > 1, lambda r: r * 2, lambda r: r - 1, (row,))

    return scan(step, start(), x)[1]


def random_limit(x: Tensor, n: Tensor) -> Any:
    limit = torch.randint(1, 5, ())
    return while_loop(lambda i, y: i < limit, lambda i, y: (i + 1, y * 2), (start(), x))[1]


def values(model: Callable[..., Any], *, literals: bool = True) -> tuple[list[str], list[list[bool]]]:
    """The operators that the host computes, and which operands of each call of graphs it has."""
    program = aot_export(model, (torch.randn(3, 4), torch.tensor(4)), dynamic_shapes={"x": {0: "rows"}, "n": None})
    host = HostValues(program.graph_module, [], lambda _: literals)
    found = [node for node in all_nodes(program.graph_module) if node in host and node.op == "call_function"]
    calls = [node for node in all_nodes(program.graph_module) if calls_graphs(node)]
    operators = [str(node.target).split(".")[1] for node in found if "getitem" not in str(node.target)]
    return sorted(operators), [[host.has_operand(call, i) for i in range(2)] for call in calls]


@pytest.mark.parametrize(
    ("model", "operators", "operands"),
    [
        (counted, ["__and__", "add", "clone", "lt", "ne"], [[True, False]]),
        (limited_by_data, [], [[False, False]]),
        # The zero of the inner loop, its steps and its end; the outer counter, its steps, and what the branch asks.
        (
            counter_in_a_loop_of_the_device,
            ["add", "add", "eq", "lt", "remainder", "zeros", "zeros"],
            [[True, False], [False, False], [True, False]],
        ),
        (carried_from_the_device, [], [[False, False]]),
        (two_counters, ["add", "lt", "zeros"], [[True, False]]),
        (chosen_by_the_host, ["add", "add", "add", "lt", "zeros", "zeros"], [[True, False], [True, False]]),
        (scanned, ["add", "gt", "zeros"], [[True, False], [False, False]]),
        (random_limit, [], [[False, False]]),
    ],
)
def test_the_host_computes_what_it_decides_by(
    model: Callable[..., Any], operators: list[str], operands: list[list[bool]]
) -> None:
    assert values(model) == (operators, operands)


def test_constants_that_are_not_part_of_the_code_are_on_the_device() -> None:
    assert values(counted, literals=False) == ([], [[False, False]])
