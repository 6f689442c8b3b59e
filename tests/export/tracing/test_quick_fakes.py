"""Fake tensors that torch comes to in a roundabout way."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from aotpack.export import aot_export
from aotpack.export.tracing.quick_fakes import quick_fakes

SHAPES = ((2, 3, 4, 5), (1, 3, 1, 1), (1, 1, 4, 4), (2, 8), (1, 1), (2, 3, 5), (0, 3, 4, 4), (2, 3, 4, 5, 6), (2, 0, 4))
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def batch_norm(input: Tensor, weight: Tensor | None, mean: Tensor) -> tuple[Tensor, ...]:
    op = torch.ops.aten._native_batch_norm_legit_no_training.default
    found: tuple[Tensor, ...] = op(input, weight, weight, mean, mean, 0.1, 1e-5)
    return found


def described(*values: Tensor) -> list[tuple[object, ...]]:
    return [(tuple(v.shape), v.stride(), v.dtype, v.device, v.storage_offset()) for v in values]


def inputs(shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    """Tensors of a shape, of several layouts."""
    value = torch.ones(shape, dtype=dtype)
    found = [value, value.transpose(0, -1).contiguous().transpose(0, -1), torch.stack([value, value], -1)[..., 0]]
    return [*found, value.to(memory_format=torch.channels_last)] if len(shape) == 4 else found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layouts_of_batch_norm_are_those_of_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for real, of_weight, weighted in itertools.product(inputs(shape, dtype), {dtype, torch.float32}, (True, False)):
        found = []
        for quick in (False, True):
            with FakeTensorMode() as mode:
                value, per_channel = mode.from_tensor(real), torch.ones(shape[1], dtype=of_weight)
                if quick:
                    with quick_fakes():
                        found.append(described(*batch_norm(value, per_channel if weighted else None, per_channel)))
                else:
                    found.append(described(*batch_norm(value, per_channel if weighted else None, per_channel)))
            # Otherwise the second mode has the answer of the first.
            FakeTensorMode.cache_clear()
        assert found[0] == found[1]


def test_batch_norms_are_not_decomposed_for_their_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._decomp

    asked = []
    key = torch.ops.aten._native_batch_norm_legit_no_training.default
    decomposed = torch._decomp.decomposition_table[key]
    monkeypatch.setitem(torch._decomp.decomposition_table, key, lambda *args: asked.append(1) or decomposed(*args))
    FakeTensorMode.cache_clear()
    aot_export(torch.nn.BatchNorm2d(3).eval(), (torch.ones(2, 3, 4, 17),))
    assert not asked
    aot_export(torch.nn.BatchNorm2d(3).eval(), (torch.ones(2, 3, 4, 17).to(memory_format=torch.channels_last),))
    assert asked


def test_decompositions_of_graphs_stay() -> None:
    key = torch.ops.aten._native_batch_norm_legit_no_training.default
    table = torch._decomp.get_decompositions([key])
    with quick_fakes():
        value = torch.ones(2, 3, 4, 4)
        graph = make_fx(lambda x: batch_norm(x, None, torch.ones(3))[0], table, tracing_mode="fake")(value)
    assert any(node.target is torch.ops.aten._native_batch_norm_legit.default for node in graph.graph.nodes)
    assert torch.equal(graph(value), batch_norm(value, None, torch.ones(3))[0])


@pytest.mark.parametrize("shape", [(3,), (2, 5, 4, 4)])
def test_wrong_channels_are_errors_as_before(shape: tuple[int, ...]) -> None:
    from aotpack.errors import CaptureError

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.aten._native_batch_norm_legit_no_training(
                x, None, None, torch.ones(3), torch.ones(3), 0.1, 1e-5
            )[0]  # type: ignore[no-any-return]

    with pytest.raises(CaptureError):
        aot_export(Model(), (torch.ones(shape),))
