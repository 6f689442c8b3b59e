"""The pass that calls the kernel of embedding bags."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from aotpack.export import ops
from aotpack.export.passes.cpu.pack_embedding_bag import pack_embedding_bag
from tests.export.pass_checks import count, operators, run

aten = torch.ops.aten


class TestEmbeddingBag:
    @pytest.mark.parametrize("mode", ["sum", "mean", "max"])
    @pytest.mark.parametrize("padding", [None, 2, -1])
    @pytest.mark.parametrize("last", [False, True])
    def test_pooled_results(self, mode: str, padding: int | None, last: bool) -> None:
        model = nn.EmbeddingBag(9, 4, mode=mode, padding_idx=padding, include_last_offset=last)
        args = (torch.tensor([1, 2, 8, 2, 0, 8, 4]), torch.tensor([0, 3, 3, 7] if last else [0, 3, 3]))
        after = run(model.eval(), args, pack_embedding_bag)
        assert operators(after) == ["aotpack.embedding_bag.default"]

    def test_weights_per_sample(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.bag = nn.EmbeddingBag(9, 4, mode="sum")

            def forward(self, indices: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
                return self.bag(indices, offsets, per_sample_weights=weights)

        args = (torch.tensor([1, 2, 8]), torch.tensor([0, 1]), torch.randn(3))
        assert count(run(Model().eval(), args, pack_embedding_bag), ops.embedding_bag) == 1

    def test_readers_of_other_results_keep_the_operator(self) -> None:
        def function(i: Tensor, o: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            return torch.ops.aten.embedding_bag(w, i, o, False, 1)[:2]

        args = (torch.tensor([1, 2, 8]), torch.tensor([0, 1]), torch.randn(9, 4))
        assert count(run(function, args, pack_embedding_bag), ops.embedding_bag) == 0

    def test_other_dtypes_stay(self) -> None:
        args = (torch.tensor([1, 2, 8]), torch.tensor([0, 1]))
        assert count(run(nn.EmbeddingBag(9, 4).double(), args, pack_embedding_bag), ops.embedding_bag) == 0
