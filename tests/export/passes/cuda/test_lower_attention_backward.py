"""The pass that rewrites attention with gradients as products."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from aotpack.export import aot_export
from aotpack.export.ops.cuda import attention, gemm
from aotpack.export.passes.cuda.lower_attention_backward import lower_attention_backward
from aotpack.export.passes.cuda.use_attention import use_attention
from aotpack.export.passes.cuda.use_gemm import use_gemm
from aotpack.export.passes.patterns.attention_backward import BACKWARD
from tests.export.pass_checks import calls, count
from tests.export.passes.cuda.attentions import ATTENTIONS, IN_DTYPES, program_of, sdpa


@pytest.mark.parametrize(("name", "dtype"), IN_DTYPES)
def test_gradients(name: str, dtype: torch.dtype) -> None:
    program = program_of(ATTENTIONS[name], dtype, (lower_attention_backward, use_attention, use_gemm))
    assert count(program, BACKWARD) == 0
    assert len(calls(program, attention.OPERATOR)) == 1
    assert len(calls(program, gemm.OPERATOR)) == 5


def test_dynamic_heads_stay() -> None:
    def gradient(q: Tensor) -> Tensor:
        q = q.detach().requires_grad_()
        return torch.autograd.grad(sdpa(q, q, q).sum(), (q,))[0]

    dim = Dim("dim", min=2, max=64)
    program = aot_export(gradient, (torch.randn(2, 3, 5, 8),), dynamic_shapes={"q": {3: dim}})
    assert lower_attention_backward(program) is program
