"""A forward and its backward as graphs, run by torch, beside eager."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack import Dim
from aotpack.errors import CaptureError
from aotpack.export import Program, aot_export
from aotpack.export.torch_compat import pytree

pytestmark = pytest.mark.torch
F = nn.functional


def _graph(program: Program, inputs: list[Any]) -> list[Any]:
    with torch.no_grad():
        return list(torch.fx.Interpreter(program.runnable()).run(*inputs))


def _halves(program: Program) -> tuple[list[int], list[int]]:
    """The outputs and inputs of the forward that the backward reads."""
    saved: Any = program.companions[0].signature.in_spec.args[0]
    outputs, inputs = saved.items
    return list(outputs.keys), list(inputs.keys)


def _saved_bytes(program: Program, outputs: list[Any]) -> int:
    kept, _ = _halves(program)
    return sum(value.nbytes for value in (outputs[i] for i in kept) if isinstance(value, Tensor))


def _check(program: Program, model: nn.Module, *args: Tensor, tolerance: float = 1e-9) -> int:
    """Compares a call with eager; the bytes that the forward keeps."""
    leaves = [arg.detach().clone().requires_grad_(arg.requires_grad) for arg in args]
    # Models may write to their inputs.
    plain = [arg.detach().clone() for arg in args]
    eager = copy.deepcopy(model)
    expected = [leaf for leaf in pytree.tree_leaves(eager(*leaves)) if isinstance(leaf, Tensor)]
    outputs = _graph(program, plain)
    wanted = [leaf for leaf in expected if leaf.requires_grad]
    gradients = [torch.randn_like(leaf) for leaf in wanted]
    for value, answer in zip(outputs, expected, strict=False):
        torch.testing.assert_close(value, answer.detach(), rtol=tolerance, atol=tolerance)
    kept, read = _halves(program)
    given = [*(outputs[i] for i in kept), *(plain[i] for i in read), *gradients]
    parameters = [p for p in eager.parameters() if p.requires_grad]
    inputs = [leaf for leaf in leaves if leaf.requires_grad]
    found = torch.autograd.grad(wanted, [*parameters, *inputs], gradients, allow_unused=True)
    own = iter(_graph(program.companions[0], given))
    for gradient in found:
        if gradient is not None:
            torch.testing.assert_close(next(own), gradient, rtol=tolerance, atol=tolerance)
    return _saved_bytes(program, outputs)


def _double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


class Chain(nn.Module):
    """Has a parameter and an input without an effect, and results without gradients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.unused = nn.Linear(2, 2)
        self.double()

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        for layer in self.layers:
            x = torch.tanh(layer(x) * 2).exp()
        return {"x": x, "largest": x.argmax(1), "pair": (x.sum(), None), "y": y.detach() * 2}


CHAIN = {"x": {0: Dim("batch", 1, 16)}, "y": {0: "batch"}}


@pytest.fixture(scope="module")
def chains() -> dict[float, Program]:
    args = (_double(3, 6), _double(3, 2))
    return {
        budget: aot_export(Chain(), args, mode="forward_backward", dynamic_shapes=CHAIN, memory_budget=budget)
        for budget in (1.0, 0.5, 0.0)
    }


@pytest.mark.parametrize("batch", [1, 16])
def test_a_smaller_budget_keeps_less(chains: dict[float, Program], batch: int) -> None:
    kept = [_check(program, Chain(), _double(batch, 6), _double(batch, 2)) for program in chains.values()]
    assert kept[0] > kept[1] > kept[2] == 0


def test_what_has_no_effect_has_no_gradient(chains: dict[float, Program]) -> None:
    signature = str(chains[1.0].companions[0].signature)
    assert "'unused.weight': None, 'unused.bias': None" in signature
    assert "'input_gradients': {'x': float64[batch, 6], 'y': None}" in signature
    assert "output_gradients: {'x': float64[batch, 6], 'largest': None, 'pair': (float64[], None), 'y': None}" in (
        signature
    )
    assert not any("unused" in name for name in chains[1.0].constants)


class Block(nn.Module):
    """A transformer block."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.projection, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, 2, 4).transpose(1, 2) for part in self.projection(self.norm(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.mlp(x)  # type: ignore[no-any-return]


def test_a_transformer_block() -> None:
    shapes = {"x": {0: Dim("batch", 1, 8), 1: Dim("length", 1, 16)}}
    program = aot_export(Block(), (_double(2, 5, 8),), mode="forward_backward", dynamic_shapes=shapes)
    for batch, length in ((1, 1), (8, 16)):
        _check(program, Block(), _double(batch, length, 8))
    # The three parts of the projection are kept as one tensor.
    kept = [str(spec) for spec in program.signature.outputs]
    assert [spec for spec in kept if "24]" in spec] == ["float64[batch*length, 24]"]


def test_a_recurrent_layer_with_sizes_of_its_own() -> None:
    torch.manual_seed(0)

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            output, (hidden, _) = self.layer(x)
            # The backward needs the size, and nothing else of x.
            return output.sum((0, 1)), hidden.mean() / x.shape[0]

    model = Recurrent().double()
    program = aot_export(model, (_double(2, 3, 3),), mode="forward_backward", dynamic_shapes={"x": {0: "batch"}})
    _check(program, model, _double(1, 3, 3))
    _check(program, model, _double(9, 3, 3))


def test_a_size_that_only_the_forward_sees_is_kept_as_a_number() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return (x.detach().mean(0) * self.scale).sum() / x.shape[0]

    program = aot_export(
        Mean(), (torch.randn(4, 3, dtype=torch.float64),), mode="forward_backward", dynamic_shapes={"x": {0: "batch"}}
    )
    assert "int" in str(program.companions[0].signature.in_spec) or any(
        spec.number == "int" for spec in program.companions[0].signature.inputs
    )
    _check(program, Mean(), torch.randn(7, 3, dtype=torch.float64))


def test_state_in_python_objects_has_the_names_of_the_model() -> None:
    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((3,), 2.0, dtype=torch.float64))
            self.last = torch.ones(3, dtype=torch.float64)
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            result = x * self.weight * self.last
            self.last = result.detach()
            self.calls += 1
            return result * self.calls

    program = aot_export(Remembers(), (_double(3),), mode="forward_backward")
    assert program.constants.keys() == {"weight", "last", "calls"}
    _check(program, Remembers(), _double(3))


def test_inputs_that_are_one_tensor() -> None:
    class Product(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x * y.sin()

    x = _double(3)
    program = aot_export(Product(), (x, x), mode="forward_backward")
    _check(program, Product(), x, x)
    _check(program, Product(), _double(3), _double(3))


def test_what_the_forward_overwrites_is_kept() -> None:
    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, dtype=torch.float64))
            self.register_buffer("state", torch.randn(3, dtype=torch.float64))

        def forward(self, x: Tensor, count: Tensor) -> Tensor:
            result = x * self.weight * self.state.clone() * count.clone()
            self.state.mul_(2)
            count.add_(1)
            return result

    model = Running()
    args = (_double(2, 3), torch.ones(3, dtype=torch.float64))
    program = aot_export(model, args, mode="forward_backward", memory_budget=0.0)
    outputs, inputs = _halves(program)
    assert inputs == [0] and len(outputs) == 2
    _check(program, copy.deepcopy(model), *args)


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (nn.Linear(2, 2).requires_grad_(False), {}, "no parameter of the model requires grad"),
        (nn.Linear(2, 2), {"memory_budget": 2}, "memory_budget is 2"),
        (nn.Linear(2, 2), {"weights": "x.safetensors"}, "weights and variants are not for"),
        (nn.Linear(2, 2), {"mode": "forward", "memory_budget": 0.5}, "memory_budget is for mode"),
        (nn.Embedding(3, 2, sparse=True), {}, "is sparse"),
    ],
)
def test_errors(model: nn.Module, arguments: dict[str, Any], message: str) -> None:
    x = torch.zeros(1, dtype=torch.int64) if isinstance(model, nn.Embedding) else torch.ones(1, 2)
    with pytest.raises(CaptureError, match=message):
        aot_export(model, (x,), **{"mode": "forward_backward", **arguments})


def test_an_input_cannot_be_written_to_and_have_a_gradient() -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x.mul_(2)
            return x.exp()

    with pytest.raises(CaptureError, match="in-place"):
        aot_export(Writes(), (torch.ones(2, requires_grad=True),), mode="forward_backward")


def test_sizes_out_of_the_data() -> None:
    class Selected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.weight)[x > 0].exp()

    with pytest.raises(CaptureError, match="comes out of the data"):
        aot_export(Selected(), (torch.randn(3),), mode="forward_backward")


def test_a_model_without_a_backward() -> None:
    class Overwrites(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            result = x * y
            y.add_(1)
            return result

    with pytest.raises(CaptureError, match="the backward of the example call fails"):
        aot_export(Overwrites(), (torch.ones(2, requires_grad=True), torch.ones(2)), mode="forward_backward")
