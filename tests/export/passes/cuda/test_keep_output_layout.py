"""The pass that gives results the strides that were captured."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from aotpack.export.passes.cuda.keep_output_layout import keep_output_layout
from aotpack.export.passes.cuda.use_attention import use_attention
from tests.export.pass_checks import count, run

aten = torch.ops.aten


def test_results_get_the_captured_strides_back() -> None:
    q = torch.randn(2, 3, 4, 8)
    moved = run(F.scaled_dot_product_attention, (q, q, q), use_attention)
    wanted = F.scaled_dot_product_attention(q, q, q).stride()
    assert moved.graph_module(q, q, q)[0].stride() != wanted
    after = run(F.scaled_dot_product_attention, (q, q, q), use_attention, keep_output_layout)
    assert after.graph_module(q, q, q)[0].stride() == wanted


def test_results_that_have_them_are_not_copied() -> None:
    after = run(lambda x: x.mT + 1, (torch.randn(4, 5),), keep_output_layout)
    assert count(after, aten.clone.default) == 0
