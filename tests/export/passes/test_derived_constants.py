"""Constants that passes derive are described without memory, as the tensors that packing computes will be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from aotpack.export import aot_export
from aotpack.export.ir.rewriter import Rewriter
from aotpack.export.torch_compat.fake_tensors import FakeTensor


def _on_the_cpu(weight: Tensor, bias: Tensor) -> Tensor:
    """A function that makes a tensor on a device."""
    return torch.cat([weight, torch.zeros(1, 3, device="cpu")])


@pytest.mark.parametrize(
    "function",
    [
        lambda weight, bias: weight * bias[:, None],
        lambda weight, bias: weight.t().contiguous().bfloat16(),
        lambda weight, bias: weight.t(),
        lambda weight, bias: weight,
        lambda weight, bias: torch.ops.aotpack.pack_linear(weight),
        lambda weight, bias: torch.zeros(2, 5),
        _on_the_cpu,
    ],
)
def test_derived_constants_are_as_computed(function: Callable[..., Tensor]) -> None:
    model = nn.Linear(3, 4)
    rewriter = Rewriter(aot_export(model, (torch.randn(2, 3),)))
    constants = {str(node.target): node for node in rewriter.graph.find_nodes(op="get_attr")}
    inputs = [constants["weight"], constants["bias"]]
    value = rewriter.derive("made", "folded", function, inputs, inputs[0]).meta["val"]
    expected = function(model.weight.detach(), model.bias.detach())
    assert isinstance(value, FakeTensor)
    assert (value.shape, value.stride(), value.dtype) == (expected.shape, expected.stride(), expected.dtype)
    assert value.device == expected.device


def test_a_function_that_fails_says_why() -> None:
    rewriter = Rewriter(aot_export(nn.Linear(3, 4), (torch.randn(2, 3),)))
    weight = next(node for node in rewriter.graph.find_nodes(op="get_attr") if node.target == "weight")
    with pytest.raises(RuntimeError, match="invalid for input of size 12"):
        rewriter.derive("made", "folded", lambda w: w.view(5), [weight], weight)
