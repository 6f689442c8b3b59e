"""Mixtures of experts: products of groups of rows, by torch's operator and by that of transformers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack import Dim
from aotpack.errors import ExecutionError
from tests.export.conftest import Build, assert_close

pytestmark = pytest.mark.torch


def _by_group(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """In double, a group at a time; what belongs to no group is 0."""
    y, first = torch.zeros(x.shape[0], w.shape[2], dtype=torch.float64), 0
    for group, last in enumerate(ends.tolist()):
        y[first:last] = x[first:last].double() @ w[group].double()
        first = last
    return y


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_all_forms(build: Build, dtype: torch.dtype) -> None:
    def forms(x: Tensor, w: Tensor, ends: Tensor, b: Tensor, batch: Tensor) -> tuple[Tensor, ...]:
        return (
            torch._grouped_mm(x, w, offs=ends),
            torch._grouped_mm(x, w.transpose(1, 2).contiguous().transpose(1, 2), offs=ends),
            torch._grouped_mm(x.t(), b, offs=ends),
            torch._grouped_mm(batch, x.t(), offs=ends),
            torch._grouped_mm(batch, w),
        )

    def call(rows: int, ends: list[int]) -> tuple[Tensor, ...]:
        x, b = torch.randn(rows, 16, dtype=dtype), torch.randn(rows, 24, dtype=dtype)
        w, batch = torch.randn(4, 16, 8, dtype=dtype), torch.randn(4, 32, 16, dtype=dtype)
        return x, w, torch.tensor(ends, dtype=torch.int32), b, batch

    # Eager wants rows of whole 16 bytes.
    rows = 8 * Dim("eighths", min=1, max=100)
    shapes = {"x": {0: rows}, "w": None, "ends": None, "b": {0: rows}, "batch": None}
    archive = build(forms, call(16, [4, 8, 10, 16]), dynamic_shapes=shapes, any_size=False)
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    for count, ends in ((16, [4, 8, 10, 16]), (32, [0, 0, 32, 32]), (8, [1, 2, 3, 8]), (400, [100, 100, 399, 400])):
        x, w, where, b, batch = call(count, ends)
        parts = list(zip([0, *ends[:-1]], ends, strict=True))
        outer = torch.stack([x[i:j].double().t() @ b[i:j].double() for i, j in parts])
        columns = [batch[g].double() @ x[i:j].double().t() for g, (i, j) in enumerate(parts)]
        rows_of = _by_group(x, w, where)
        wanted = (rows_of, rows_of, outer, torch.cat(columns, 1), batch.double() @ w.double())
        assert_close(archive(x, w, where, b, batch), wanted, tolerance)


def test_ends_are_checked(build: Build) -> None:
    x, w, ends = torch.randn(8, 16), torch.randn(3, 16, 8), torch.tensor([2, 5, 8], dtype=torch.int32)
    archive = build(lambda x, w, ends: torch._grouped_mm(x, w, offs=ends), (x, w, ends))
    for wrong in ([2, 1, 8], [2, 5, 9], [-1, 5, 8]):
        with pytest.raises(ExecutionError, match="lies before the group's start or beyond the 8 rows"):
            archive(x, w, torch.tensor(wrong, dtype=torch.int32))
    short = archive(x, w, torch.tensor([1, 2, 3], dtype=torch.int32))
    assert_close(short, _by_group(x, w, torch.tensor([1, 2, 3])), 1e-5)


class Experts(nn.Module):
    """A layer of experts with weights that lie transposed, as models have them, and the gradients of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(3, 24, 16)), nn.Parameter(torch.randn(3, 24, 16))

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        hidden = torch._grouped_mm(x, self.up.transpose(1, 2), offs=ends)
        return torch._grouped_mm(hidden.sin(), self.down, offs=ends).cos().sum()


def test_gradients(build: Build) -> None:
    model = Experts()
    x, ends = torch.randn(10, 16), torch.tensor([3, 3, 10], dtype=torch.int32)
    archive = build(model, (x, ends), mode="joint")
    x, ends = torch.randn(10, 16), torch.tensor([4, 9, 10], dtype=torch.int32)
    result = archive(x, ends)
    up, down = (p.detach().double().requires_grad_() for p in (model.up, model.down))
    hidden = [x[i:j].double() @ up[g].t() for g, (i, j) in enumerate(((0, 4), (4, 9), (9, 10)))]
    loss = sum((part.sin() @ down[g]).cos().sum() for g, part in enumerate(hidden))
    assert isinstance(loss, Tensor)
    assert_close(result["outputs"], loss.detach(), 1e-5)
    assert_close((result["gradients"]["up"], result["gradients"]["down"]), torch.autograd.grad(loss, (up, down)), 1e-5)


class Mixtral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import MixtralConfig, MixtralForCausalLM

        config: Any = MixtralConfig(
            vocab_size=100,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=4,
            num_experts_per_tok=2,
            max_position_embeddings=64,
        )
        self.model = MixtralForCausalLM(config)

    def forward(self, ids: Tensor) -> Tensor:
        result: Tensor = self.model(ids, labels=ids, use_cache=False).loss
        return result


def test_models_of_transformers(build: Build) -> None:
    """Chosen experts are those of eager, and so are all gradients: nothing here is near a tie."""
    torch.manual_seed(0)
    model = Mixtral()
    ids = torch.randint(0, 100, (2, 7))
    shapes = {"ids": {0: Dim("batch", min=1, max=8), 1: Dim("length", min=2, max=64)}}
    archive = build(model.eval(), (ids,), mode="joint", dynamic_shapes=shapes)
    for sizes in ((2, 7), (1, 9), (3, 40)):
        ids = torch.randint(0, 100, sizes)
        result = archive(ids)
        eager = copy.deepcopy(model)
        loss = eager(ids)
        loss.backward()
        assert_close(result["outputs"], loss.detach(), 1e-5)
        wanted = {name: p.grad for name, p in eager.named_parameters()}
        assert_close([result["gradients"][name] for name in wanted], list(wanted.values()), 1e-4)
