"""What a user declares of sizes works for every declared size, or the capture fails with the model's line."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aotpack import Dim
from aotpack.export import aot_export
from aotpack.export.lower import lower
from aotpack.export.passes import select
from aotpack.export.program import Program
from aotpack.export.runner import run_passes
from aotpack.export.shared import share_state

randn = torch.randn


def lowered_checks(program: Program) -> list[str]:
    """All checks of a program, those that code generation adds too."""
    (program,) = share_state([program])
    program = run_passes(program, select(()))
    return [check.text for check in (*program.checks, *lower(program, "x86-64-v3").checks)]


class Masked(nn.Module):
    """Attention whose tokens under the padding are set to zero, as transformers' mixtures of experts do."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        x = x.clone()
        x[~keep] = 0
        q = x.view(b, n, 2, 4).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, q, q, attn_mask=keep[:, None, None, :])
        return self.out(y.transpose(1, 2).reshape(b, n, -1))


class ViewedAttention(Masked):
    """The same without a copy: eager's fused attention leaves its result in the order that the view needs."""

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q = x.view(b, n, 2, 4).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, q, q, attn_mask=keep[:, None, None, :])
        return self.out(y.transpose(1, 2).view(b, n, -1))


@pytest.mark.parametrize("model", [Masked, ViewedAttention])
def test_masked_attention_from_batch_one_and_length_one(model: type[Masked]) -> None:
    b, n = Dim("b", 1, 8), Dim("n", 1, 16)
    keep = torch.tensor([[True] * 5, [True, True, True, False, False], [True, False, False, False, False]])
    program = aot_export(
        model().eval(), (randn(3, 5, 8), keep), dynamic_shapes={"x": {0: b, 1: n}, "keep": {0: b, 1: n}}
    )
    assert [str(dim) for dim in program.signature.dims] == ["b in [1, 8]", "n in [1, 16]"]
    assert not program.checks and not program.notes


def padded(x: torch.Tensor) -> torch.Tensor:
    h = x.shape[1]
    return F.pad(x, (0, (8 - h % 8) % 8)).unfold(1, 8, 8).mean(-1)


def test_the_layout_of_a_result_is_no_guard() -> None:
    program = aot_export(padded, (randn(2, 21),), dynamic_shapes={"x": {1: Dim("h", 8, 99)}})
    assert str(program.signature.dims[0]) == "h in [8, 99]"
    assert lowered_checks(program) == []
