"""Models that change the shape of a caller's tensor in place; layouts of results with sizes out of the data."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from aotpack.errors import CaptureError
from aotpack.export import aot_export
from aotpack.export.tracing.interface import memory_order
from tests.support.building import Build, assert_close

pytestmark = pytest.mark.torch


def _assigned(x: Tensor) -> Tensor:
    x.data = x * 2
    return x + 1


def _undone(x: Tensor) -> Tensor:
    x.unsqueeze_(0)
    y = x * 2
    x.squeeze_(0)
    return y


_CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "unsqueeze_": lambda x: x.unsqueeze_(0) * 2,
    "squeeze_": lambda x: x.squeeze_() * 2,
    "transpose_": lambda x: x.transpose_(0, 1) * 2,
    "swapaxes_": lambda x: x.swapaxes_(0, 1) * 2,
    "swapdims_": lambda x: x.swapdims_(0, 1) * 2,
    "t_": lambda x: x.t_() * 2,
    "resize_": lambda x: x.resize_(2) * 2,
    "resize_as_": lambda x: x.resize_as_(torch.ones(2)) * 2,
    "as_strided_": lambda x: x.as_strided_((2,), (1,)) * 2,
    "set_": lambda x: x.set_(torch.ones(3)) * 2,  # type: ignore[call-overload]
    "written too": lambda x: x.unsqueeze_(0).add_(1) * 2,
    "assigned": _assigned,
    "undone": _undone,
}


@pytest.mark.parametrize("name", _CHANGES)
def test_changed_inputs_are_refused_with_the_line(name: str) -> None:
    given = torch.randn(3, 1)
    kept = given.clone()
    with pytest.raises(CaptureError, match="input 'x' in place") as caught:
        aot_export(_CHANGES[name], (given,))
    assert f"{__file__}:" in str(caught.value)
    assert "x = x.unsqueeze(0)" in (caught.value.hint or "")
    assert given.shape == kept.shape and torch.equal(given, kept)


def test_nested_inputs_have_their_names() -> None:
    with pytest.raises(CaptureError, match=r"input 'batch\.ids' in place, from shape \[2, 3\] to \[3, 2\]"):
        aot_export(lambda batch: batch["ids"].t_() + 1, ({"ids": torch.ones(2, 3)},))


def test_tensors_of_the_model_may_be_reshaped(build: Build) -> None:
    def reshaping(x: Tensor) -> Tensor:
        y = x * 2
        y.unsqueeze_(0).transpose_(0, 1)
        x.squeeze_(0)  # of size 3: nothing changes
        return y + x.sum()

    x = torch.randn(3, 2)
    assert_close(build(reshaping, (x.clone(),))(x.clone()), reshaping(x.clone()))


# ---- sizes out of the data ------------------------------------------------------------------------------------------


class Masked(nn.Module):
    """Rows that a mask picks, through views and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        rows = x[m]
        y = self.conv(rows)
        wide = torch.ones(1, 1, 1, 1).expand(y.shape[0], 8, 1, 1)
        flat = rows.flatten(1)
        return (
            y * wide,
            flat.T,
            rows.permute(2, 0, 3, 1),
            flat.unsqueeze(0).mT,
            rows.to(memory_format=torch.channels_last),
        )


def test_results_with_rows_out_of_the_data_keep_their_layout(build: Build) -> None:
    torch.manual_seed(0)
    model = Masked().eval()
    x = torch.randn(5, 3, 6, 6)
    archive = build(model, (x, torch.tensor([True, False, True, True, False])))
    for mask in ([1, 1, 1, 1, 1], [0, 0, 1, 0, 0], [0, 1, 0, 0, 1]):
        m = torch.tensor(mask, dtype=torch.bool)
        with torch.no_grad():
            expected = model(x, m)
        actual = archive(x, m)
        assert_close(actual, expected)
        if m.sum() > 1:
            assert [tuple(t.stride()) for t in actual] == [tuple(t.stride()) for t in expected]
    with torch.no_grad():
        assert [tuple(t.shape) for t in archive(x, torch.zeros(5, dtype=torch.bool))] == [
            tuple(t.shape) for t in model(x, torch.zeros(5, dtype=torch.bool))
        ]


@pytest.mark.parametrize("example", [1, 2, 5])
def test_layouts_do_not_depend_on_the_examples_sizes(example: int) -> None:
    def views(x: Tensor) -> tuple[Tensor, ...]:
        return x.permute(2, 1, 0), x.permute(2, 0, 1), x.transpose(1, 2)

    program = aot_export(views, (torch.randn(example, 4, 3),), dynamic_shapes={"x": {0: "batch"}})
    assert [output.order for output in program.signature.outputs] == [(2, 1, 0), (1, 2, 0), (0, 2, 1)]
    assert program.signature.dims[0].min == 0 and not program.checks


def test_memory_order_of_plain_tensors() -> None:
    for order in itertools.permutations(range(4)):
        sizes = [2, 3, 4, 5]
        lying = torch.empty([sizes[d] for d in order]).permute([order.index(d) for d in range(4)])
        assert memory_order(lying) == order
