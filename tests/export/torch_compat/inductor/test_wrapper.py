"""The generator of wrappers: what it overrides is in the installed torch, and what it prevents."""

from __future__ import annotations

import inspect
import itertools

import pytest
import torch
from torch import Tensor
from torch._inductor import ir
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

from aotpack.export.torch_compat.inductor.wrapper import ModuleParts, ModuleWrapper
from tests.export.conftest import Build, assert_close

OVERRIDDEN = sorted(
    name for name, value in {**vars(ModuleParts), **vars(ModuleWrapper)}.items() if inspect.isroutine(value)
)


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_each_method_overrides_one_of_torch(name: str) -> None:
    ours, theirs = (
        [p for p in inspect.signature(getattr(owner, name)).parameters.values() if p.name != "self"]
        for owner in (ModuleWrapper, CppWrapperCpu)
    )
    named = [p.name for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert named == [p.name for p in theirs][: len(named)]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in ours)
    assert takes_any or len(named) == len(theirs)


@pytest.mark.parametrize("name", ["codegen_inputs", "codegen_tensor_item", "finalize_prefix", "generate_end"])
def test_what_it_relies_on_is_there(name: str) -> None:
    assert callable(getattr(CppWrapperCpu, name))


def test_layouts_of_pieces() -> None:
    assert issubclass(ir.NonOwningLayout, ir.Layout)


def test_arrays_are_declared_where_they_are_used() -> None:
    wrapper = object.__new__(ModuleWrapper)
    wrapper.int_array_id = itertools.count()
    wrapper.declared_int_array_vars, wrapper.codegen_int_array_var_cache, wrapper._declared_in = set(), {}, []
    for _ in range(100):
        # As when the next list of lines has the address of the last one.
        lines: list[str] = []
        name = wrapper.codegen_int_array_var("{1, 2}", lines.append, known_statically=True)
        assert any(name in line for line in lines)


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
