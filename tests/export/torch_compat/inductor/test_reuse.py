"""That nothing is computed in the place of a piece of a concatenation, whose memory is given away with the whole."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor

from aotpack.export.torch_compat.inductor.reuse import pieces_left_alone
from tests.export.conftest import Build, assert_close


def test_what_is_touched_of_torch() -> None:
    from torch._inductor import ir
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    before = PythonWrapperCodegen.can_reuse
    assert list(inspect.signature(before).parameters) == ["self", "input_buffer", "output_buffer"]
    assert issubclass(ir.NonOwningLayout, ir.Layout)
    with pieces_left_alone():
        assert PythonWrapperCodegen.can_reuse is not before
    assert PythonWrapperCodegen.can_reuse is before


def test_gradients_of_a_recurrent_network(build: Build) -> None:
    """The network in whose gradients TorchInductor 2.13 overwrites what it still reads."""
    network = torch.nn.RNN(6, 4, 2, bidirectional=True).eval()

    def gradients(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        leaves = [t.detach().requires_grad_() for t in (x, *weights)]
        state = x.new_zeros(4, x.shape[1], 4)
        y = torch.rnn_tanh(leaves[0], state, leaves[1:], True, 2, 0.0, False, True, False)[0]
        return torch.autograd.grad(y.square().sum(), leaves)

    weights = [w.detach() for w in network.parameters()]
    archive = build(gradients, (torch.randn(3, 2, 6), *weights))
    x = torch.randn(3, 2, 6)
    assert_close(archive(x, *weights), gradients(x.double(), *(w.double() for w in weights)), 1e-5)
