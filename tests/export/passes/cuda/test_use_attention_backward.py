"""The pass that calls the kernels of attention with gradients."""

from __future__ import annotations

import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export import aot_export
from aotpack.export.ops.cuda import attention, attention_backward
from aotpack.export.passes.common.views_to_reshapes import views_to_reshapes
from aotpack.export.passes.cuda.lower_attention_backward import lower_attention_backward
from aotpack.export.passes.cuda.use_attention_backward import use_attention_backward
from aotpack.export.passes.patterns.attention_backward import BACKWARD, FORWARD
from aotpack.export.passes.runner import run_passes
from tests.export.pass_checks import calls, count
from tests.export.passes.cuda.attentions import ATTENTIONS, IN_DTYPES, Attention, program_of, sdpa
from tests.support.building import joint_reference


@pytest.mark.parametrize(("name", "dtype"), IN_DTYPES)
def test_gradients(name: str, dtype: torch.dtype) -> None:
    program = program_of(ATTENTIONS[name], dtype, (use_attention_backward,))
    assert count(program, FORWARD, BACKWARD) == 0
    assert len(calls(program, attention.WITH_STATISTICS)) == 1
    assert len(calls(program, attention_backward.OPERATOR)) == 1


def test_gradients_of_one_forward_share_it() -> None:
    def gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        operands = [t.detach().requires_grad_() for t in (q, k, v)]
        y = sdpa(*operands)
        return *torch.autograd.grad(y.sum(), operands, retain_graph=True), *torch.autograd.grad((y * y).sum(), operands)

    inputs = ATTENTIONS["plain"].inputs(torch.float32)
    program = run_passes(aot_export(gradients, inputs), (use_attention_backward,))
    assert len(calls(program, attention.WITH_STATISTICS)) == 1
    assert len(calls(program, attention_backward.OPERATOR)) == 2
    for value, right in zip(program.runnable()(*inputs), gradients(*inputs), strict=True):
        torch.testing.assert_close(value, right.float(), rtol=1e-4, atol=1e-5)


class _Causal(nn.Module):
    """Heads of a projection, those of keys repeated as transformers does."""

    def __init__(self, dropout: float = 0.0, dim: int = 8) -> None:
        super().__init__()
        self.project = nn.Linear(16, 8 * dim)
        self.dropout, self.dim = dropout, dim

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (8, self.dim)).transpose(1, 2).split([4, 2, 2], 1)
        k, v = (t[:, :, None].expand(-1, -1, 2, -1, -1).reshape(t.shape[0], 4, t.shape[2], self.dim) for t in (k, v))
        y = sdpa(q, k, v, is_causal=True, dropout_p=self.dropout)
        return (y * (y + 0.5)).mean()


def test_joint() -> None:
    model, x = _Causal(), torch.randn(2, 5, 16, requires_grad=True)
    program = aot_export(model, (x,), mode="joint", dynamic_shapes={"x": {1: Dim("length", min=1, max=64)}})
    program = run_passes(program, (views_to_reshapes, use_attention_backward))
    (forward,) = calls(program, attention.WITH_STATISTICS)
    assert [node.meta["val"].shape[1] for node in forward.all_input_nodes] == [4, 2, 2]
    assert len(calls(program, attention_backward.OPERATOR)) == 1
    for length in (5, 1, 33):
        x = torch.randn(2, length, 16, requires_grad=True)
        wanted = pytree.tree_leaves(joint_reference(model, x))
        for value, right in zip(program.runnable()(x.detach()), wanted, strict=True):
            torch.testing.assert_close(value, right.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", [_Causal(dropout=0.1).train(), _Causal(dim=264)], ids=["dropout", "large head"])
def test_others_stay(model: nn.Module) -> None:
    program = aot_export(model, (torch.randn(2, 5, 16),), mode="joint")
    after = run_passes(program, (use_attention_backward,))
    assert after is program
    assert count(run_passes(after, (lower_attention_backward,)), BACKWARD) == 0


def test_double_precision_stays() -> None:
    program = program_of(Attention(sdpa), torch.float64, (use_attention_backward,))
    assert count(program, BACKWARD) == 1


def test_masks_with_gradients_stay() -> None:
    def gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        q, mask = q.detach().requires_grad_(), q[0, 0, :, :6].detach().requires_grad_()
        return torch.autograd.grad(sdpa(q, k, v, mask).sum(), (q, mask))

    program = aot_export(gradients, ATTENTIONS["plain"].inputs(torch.float32))
    assert run_passes(program, (use_attention_backward,)) is program
