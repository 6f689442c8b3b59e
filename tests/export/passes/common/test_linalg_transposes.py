"""The pass that settles which matrix determinants and solutions are factored from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from aotpack.export.ops.linalg import factors_transpose
from aotpack.export.passes.common.linalg_transposes import settle_factors
from tests.export.pass_checks import calls, operators, run

aten = torch.ops.aten


@pytest.mark.parametrize(("op", "name"), [(aten._linalg_det, "det"), (aten._linalg_slogdet, "slogdet")])
@pytest.mark.parametrize("contiguous", [True, False])
def test_determinants_factor_what_aten_factors(op: Any, name: str, contiguous: bool) -> None:
    a = torch.randn(2, 3, 3) + 2 * torch.eye(3)
    x = a if contiguous else a.mT
    # The factors are results, too: `run` compares them with aten's.
    after = run(lambda x: op.default(x), (x,), settle_factors)
    transposed = ["aten.transpose.int"] if factors_transpose(op.default, x) else []
    assert operators(after)[: len(transposed) + 1] == [*transposed, f"aotpack.linalg_{name}.default"]


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("contiguous", [True, False])
def test_solutions_factor_what_aten_factors(contiguous: bool, vectors: bool) -> None:
    def function(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return aten._linalg_solve_ex.default(a, b)[:3]

    a, b = torch.randn(2, 3, 3) + 2 * torch.eye(3), torch.randn(2, 3) if vectors else torch.randn(2, 3, 4)
    x = a if contiguous else a.mT
    after = run(function, (x, b), settle_factors)
    (solve,) = calls(after, torch.ops.aotpack.linalg_solve.default)
    assert solve.args[3] is factors_transpose(aten._linalg_solve_ex.default, x)
    assert ("aten.squeeze.dim" in operators(after)) is vectors


def test_a_solution_whose_errors_are_checked_stays() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return aten._linalg_solve_ex.default(a, b, check_errors=True)[0]

    after = run(function, (torch.randn(3, 3) + 2 * torch.eye(3), torch.randn(3, 2)), settle_factors)
    assert not after.reports
