"""The pass that calls the kernel of embedding bags."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.export.ops.cuda import embedding_bag
from aotpack.export.passes.common.views_to_reshapes import views_to_reshapes
from aotpack.export.passes.cuda.use_embedding_bag import use_embedding_bag
from tests.export.pass_checks import calls, operators, run


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("last", [False, True])
def test_pooled_results(mode: str, last: bool) -> None:
    model = nn.EmbeddingBag(9, 4, mode=mode, padding_idx=-1, include_last_offset=last)
    args = (torch.tensor([1, 2, 8, 2, 0, 8, 4]), torch.tensor([0, 3, 3, 7] if last else [0, 3, 3]))
    after = run(model.eval(), args, use_embedding_bag)
    assert operators(after) == ["aotpack.cuda_embedding_bag.default"]


class _Column(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(9, 4)

    def forward(self, sparse: Tensor) -> Tensor:
        result: Tensor = self.bag(sparse[:, 1])
        return result


@pytest.mark.parametrize("shapes", [None, {"sparse": {0: aotpack.Dim("batch", 1, 64)}}], ids=["static", "dynamic"])
def test_bags_of_one_length_have_no_offsets(shapes: object) -> None:
    args = (torch.randint(0, 9, (5, 2, 3)),)
    after = run(_Column().eval(), args, views_to_reshapes, use_embedding_bag, dynamic_shapes=shapes)
    (call,) = calls(after, embedding_bag.OPERATOR)
    assert call.args[2] is None
    # Read where the model has them.
    assert "aten.reshape.default" not in operators(after)


def test_bags_of_one_row() -> None:
    args = (torch.randint(0, 9, (5, 2, 1)),)
    (call,) = calls(run(_Column().eval(), args, views_to_reshapes, use_embedding_bag), embedding_bag.OPERATOR)
    assert call.args[2] is None


def test_given_offsets_stay() -> None:
    def model(indices: Tensor, table: Tensor) -> Tensor:
        return torch.nn.functional.embedding_bag(indices.reshape(-1), table, torch.arange(0, 9, 3))

    after = run(model, (torch.randint(0, 9, (5, 2)), torch.randn(9, 4)), views_to_reshapes, use_embedding_bag)
    (call,) = calls(after, embedding_bag.OPERATOR)
    assert call.args[2] is not None


def test_readers_of_other_results_keep_the_operator() -> None:
    def model(i: Tensor, o: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ops.aten.embedding_bag(w, i, o, False, 1)[:2]

    args = (torch.tensor([1, 2, 8]), torch.tensor([0, 1]), torch.randn(9, 4))
    assert not calls(run(model, args, use_embedding_bag), embedding_bag.OPERATOR)
