"""The seed document 004: custom operators, whose implementations are traced through. See test_dynamic_shapes.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aotpack.errors import ExecutionError
from tests.support.torchless import RemoteModel

Build = Callable[..., RemoteModel]


@torch.library.custom_op("aotpack_seed::foo", mutates_args=())
def foo(x: Tensor, y: int) -> Tensor:
    return x.clone() * y


@foo.register_fake
def _(x: Tensor, y: int) -> Tensor:
    return x.clone()


@torch.library.custom_op("aotpack_seed::_cat", mutates_args=())
def cat(t: Tensor, ds: list[int]) -> Tensor:
    return t * t.new_ones([sum(ds)])


@cat.register_fake
def _(t: Tensor, ds: list[int]) -> Tensor:
    for d in ds:
        torch._check(d >= 0)
    return t.new_empty([sum(ds)])


def _cat_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    return gradient.sum(), None


cat.register_autograd(_cat_backward, setup_context=lambda ctx, inputs, output: None)


@torch.library.custom_op("aotpack_seed::strided", mutates_args=())
def strided(x: Tensor) -> Tensor:
    return torch.empty_strided((1,), (x.item(),), device=x.device)


@strided.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_strided((1,), (torch.library.get_ctx().new_dynamic_size(),), device=x.device)


def test_item_to_inputs_kernel_nobreak(build: Build) -> None:
    def function(x: Tensor, r: Tensor) -> Tensor:
        y = x.item()
        return torch.ops.aotpack_seed.foo(r, y)  # type: ignore[no-any-return]

    archive = build(function, (torch.tensor([3]), torch.randn(2)))
    for n in (3, -1, 0):
        r = torch.randn(2)
        assert torch.equal(archive(torch.tensor([n]), r), r * n)


def test_unbacked_save_for_backwards(build: Build) -> None:
    def function(t: Tensor, sizes: Tensor) -> Tensor:
        r = torch.ops.aotpack_seed._cat(t, sizes.tolist())
        return (r * t).sum()  # type: ignore[no-any-return]

    example = (torch.randn((), requires_grad=True), torch.tensor([4, 8]))
    archive = build(function, example, mode="joint")
    for sizes in ([4, 8], [1, 0], [30, 5]):
        t = torch.randn((), requires_grad=True)
        function(t, torch.tensor(sizes)).backward()
        got = archive(t.detach(), torch.tensor(sizes))
        torch.testing.assert_close(got["input_gradients"]["t"], t.grad)


def test_dynamic_stride_nobreak(build: Build) -> None:
    """A size that is the stride of what a custom operator returns."""

    def function(x: Tensor) -> Tensor:
        r = torch.ops.aotpack_seed.strided(x)
        return torch.empty(r.stride(0), device=x.device)

    archive = build(function, (torch.tensor([3]),), check=False)  # what is in it is undefined
    assert [tuple(archive(torch.tensor([n])).shape) for n in (3, 1, 8)] == [(3,), (1,), (8,)]
    with pytest.raises(ExecutionError, match="the model checks"):
        archive(torch.tensor([-4]))
