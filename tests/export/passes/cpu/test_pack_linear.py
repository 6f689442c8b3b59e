"""The pass that packs the weights of linears and matrix products."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export import ops
from aotpack.export.ir.rewriter import bound_arguments
from aotpack.export.passes.common.fold_constants import fold_constants
from aotpack.export.passes.common.tied import merge_tied
from aotpack.export.passes.cpu.pack_linear import pack_linear
from tests.export.pass_checks import Weights, attributes, calls, count, operators, run

aten = torch.ops.aten


class TestLinear:
    @pytest.mark.parametrize(
        ("function", "sizes", "weights"),
        [
            (F.linear, (2, 5), [(33, 5), (33,)]),
            (F.linear, (5,), [(7, 5), (7,)]),
            (F.linear, (2, 3, 4, 5), [(7, 5)]),
            (lambda x, w, b: torch.addmm(b, x, w), (2, 5), [(5, 7), (7,)]),
            (torch.mm, (2, 5), [(5, 7)]),
            (torch.matmul, (3, 2, 5), [(5, 7)]),
            (torch.matmul, (5,), [(5, 7)]),
            (lambda x, w, b: torch.addmm(b, x, w, alpha=0.5, beta=2), (2, 5), [(5, 7), (7,)]),
            (lambda x, w, b: torch.addmm(b, x, w, beta=0), (2, 5), [(5, 7), (7,)]),
            (lambda x, w, b: torch.addmm(b, x, w), (2, 5), [(5, 7), (1, 7)]),
            (lambda x, w, b: torch.addmm(b, x, w), (2, 5), [(5, 7), (1,)]),
            (lambda x, w, b: F.linear(x, w, b), (2, 5), [(7, 5), (1, 7)]),
        ],
        ids=[
            "linear",
            "linear of a vector",
            "linear of 4 dims",
            "addmm",
            "mm",
            "matmul",
            "matmul of a vector",
            "factors",
            "no bias after all",
            "row as bias",
            "one bias for all",
            "linear with a row",
        ],
    )
    def test_products_with_constants_are_packed(self, function: Any, sizes: Any, weights: Any) -> None:
        model = Weights(function, *(torch.randn(w) for w in weights))
        after = run(model, (torch.randn(sizes),), pack_linear)
        assert operators(after) == ["aotpack.packed_linear.default"]
        packed = after.constant_info("_packed_w0")
        assert (packed.role, packed.sources) == ("packed", ("w0",))

    @pytest.mark.parametrize(
        ("function", "sizes", "weights"),
        [
            (lambda x, w: F.linear(x, w + x.sum()), (2, 5), [(7, 5)]),
            (lambda x, w: w @ x, (5, 2), [(7, 5)]),
            (lambda x, w: x @ w, (2, 5), [(5,)]),
            (lambda x, w: x @ w, (3, 2, 5), [(3, 5, 7)]),
            (lambda x, w, b: torch.addmm(b, x, w), (2, 5), [(5, 7), (2, 1)]),
            (lambda x, w, b: torch.addmm(b, x, w, beta=2), (2, 5), [(5, 7), (2, 7)]),
            (lambda x, w: torch.addmm(x.sum()[None], x, w), (2, 5), [(5, 7)]),
        ],
        ids=[
            "weight not constant",
            "constant first",
            "vector",
            "batched",
            "column as bias",
            "scaled matrix as bias",
            "one computed bias for all",
        ],
    )
    def test_other_products_stay(self, function: Any, sizes: Any, weights: Any) -> None:
        model = Weights(function, *(torch.randn(w) for w in weights))
        assert count(run(model, (torch.randn(sizes),), pack_linear), ops.packed_linear) == 0

    def test_a_matrix_that_is_added_is_a_residual(self) -> None:
        model = Weights(lambda x, w: torch.addmm(x.sin(), x, w), torch.randn(5, 5))
        (call,) = calls(run(model, (torch.randn(2, 5),), pack_linear), ops.packed_linear)
        assert bound_arguments(call)["residual"].target is aten.sin.default
        assert bound_arguments(call)["bias"] is None

    def test_a_bias_that_is_computed(self) -> None:
        model = Weights(lambda x, w: torch.addmm(x.sum(0, keepdim=True), x, w), torch.randn(5, 5))
        after = run(model, (torch.randn(2, 5),), pack_linear)
        assert operators(after) == ["aten.sum.dim_IntList", "aten.reshape.default", "aotpack.packed_linear.default"]

    @pytest.mark.parametrize(
        "function",
        [
            lambda x, w: x @ w.t(),
            lambda x, w: x @ w.transpose(-1, 0),
            lambda x, w: x @ w.permute(1, 0),
            lambda x, w: torch.mm(x, w.permute(0, 1).t().t().transpose(0, 1)),
            lambda x, w: F.linear(x, w.t().t()),
        ],
    )
    def test_transpositions_are_looked_through(self, function: Any) -> None:
        after = run(Weights(function, torch.randn(7, 5)), (torch.randn(2, 5),), pack_linear)
        assert operators(after) == ["aotpack.packed_linear.default"]

    def test_other_dtypes_stay(self) -> None:
        x = torch.randn(2, 5, dtype=torch.float64)
        assert count(run(nn.Linear(5, 3).double(), (x,), pack_linear), ops.packed_linear) == 0

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_halves(self, dtype: torch.dtype) -> None:
        x = torch.randn(2, 5).to(dtype)
        after = run(nn.Linear(5, 3).to(dtype), (x,), pack_linear, tolerance=2e-2)
        assert after.graph_module._packed_weight.dtype == dtype

    def test_one_weight_is_packed_once(self) -> None:
        model = Weights(lambda x, w: F.linear(F.linear(x, w), w) + x @ w, torch.randn(5, 5))
        after = run(model, (torch.randn(2, 5),), pack_linear)
        assert count(after, ops.packed_linear) == 3
        # Once as it is and once transposed.
        assert sorted(attributes(after)) == ["_packed_w0", "_packed_w0_2"]

    def test_a_table_that_is_multiplied_transposed_is_stored_once(self) -> None:
        model = Weights(lambda i, w: F.embedding(i, w) @ w.t(), torch.randn(3000, 16))
        after = run(model, (torch.tensor([[0, 2999], [5, 5]]),), fold_constants, pack_linear)
        assert operators(after) == ["aotpack.packed_embedding.default", "aotpack.packed_linear.default"]
        assert len(attributes(after)) == 1

    def test_tied_embeddings_are_read_from_the_packed_table(self) -> None:
        class Tied(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.table, self.head = nn.Embedding(37, 8), nn.Linear(8, 37, bias=False)
                self.head.weight = self.table.weight

            def forward(self, indices: Tensor) -> Tensor:
                return self.head(self.table(indices))

        after = run(Tied(), (torch.tensor([[0, 36], [5, 5]]),), merge_tied, pack_linear)
        assert operators(after) == ["aotpack.packed_embedding.default", "aotpack.packed_linear.default"]
        assert len(attributes(after)) == 1

    def test_dynamic_rows(self) -> None:
        x, other = torch.randn(2, 3, 5), torch.randn(4, 7, 5)
        shapes = {"input": {0: Dim("n"), 1: Dim("m")}}
        after = run(nn.Linear(5, 3), (x,), pack_linear, dynamic_shapes=shapes, other_args=(other,))
        (call,) = calls(after, ops.packed_linear)
        assert [str(size) for size in call.meta["val"].shape[:2]] == [
            str(size) for size in after.graph.find_nodes(op="placeholder")[0].meta["val"].shape[:2]
        ]
