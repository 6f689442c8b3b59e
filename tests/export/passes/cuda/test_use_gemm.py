"""The pass that calls the kernel of matrix products."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack.export.ops.cuda import gemm
from aotpack.export.passes.cuda.use_gemm import use_gemm
from tests.export.pass_checks import calls, run

r = torch.randn


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (nn.Linear(4, 5).eval(), (r(2, 3, 4),)),
        (nn.Linear(4, 5, bias=False).eval(), (r(4),)),
        (lambda a, b: a @ b, (r(3, 4), r(4, 5))),
        (lambda a, b: a @ b, (r(2, 1, 3, 4), r(6, 4, 5))),
        (lambda a, b: a @ b.mT, (r(2, 3, 4), r(5, 4))),
        (torch.bmm, (r(2, 3, 4), r(2, 4, 5))),
        (torch.addmm, (r(5), r(3, 4), r(4, 5))),
        (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), (r(3, 5), r(3, 4), r(4, 5))),
        (lambda c, a, b: torch.addmm(c / 0, a, b, beta=0), (r(3, 5), r(3, 4), r(4, 5))),
        (torch.baddbmm, (r(2, 3, 5), r(2, 3, 4), r(2, 4, 5))),
    ],
)
def test_products_are_sent_to_the_kernel(function: Any, inputs: tuple[Tensor, ...]) -> None:
    after = run(function, inputs, use_gemm)
    # A vector is no matrix: Inductor's sums.
    assert len(calls(after, gemm.OPERATOR)) == (inputs[0].dim() > 1 or len(inputs) > 1)


@pytest.mark.parametrize("inputs", [(torch.ones(2, 3).int(), torch.ones(3, 4).int()), (r(3), r(3, 4)), (r(2, 3), r(3))])
def test_others_stay(inputs: tuple[Tensor, ...]) -> None:
    assert not calls(run(lambda a, b: a @ b, inputs, use_gemm), gemm.OPERATOR)
