"""Sizes that come out of data, and custom operators: through archives, at other data than the example's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import Tensor, nn

import aotpack
from aotpack import Dim
from aotpack.errors import CaptureError, ExecutionError
from aotpack.export import aot_export
from tests.export.conftest import Build, assert_close
from tests.export.operators.functions import Functions


def check(build: Build, model: Any, calls: Sequence[tuple[Any, ...]], dynamic_shapes: Any = None) -> aotpack.Model:
    """Builds for the first call; all of them must give what eager gives."""
    archive = build(model, calls[0], dynamic_shapes=dynamic_shapes)
    for args in calls:
        expected = model(*args)
        for _ in range(2):
            got = archive(*args)
            assert pytree.tree_structure(got) == pytree.tree_structure(expected)
            assert_close(got, expected, 1e-5)
    return archive


# ---- sizes ----------------------------------------------------------------------------------------------------------


def test_places_of_nonzero(build: Build) -> None:
    model = Functions(
        nonzero=lambda x: x.nonzero(),
        as_tuple=lambda x: x.nonzero(as_tuple=True),
        argwhere=lambda x: torch.argwhere(x > 0) * 2,
        masked_select=lambda x: x.masked_select(x > 0) + 1,
        selected=lambda x: x[x > 0].sum(),
        rows=lambda x: x[x[:, 0] > 0].softmax(-1),
        counted=lambda x: x * x.nonzero().shape[0],
    )
    xs = [torch.randn(n, 4) * (torch.rand(n, 4) < 0.7) for n in (6, 9, 1, 30)]
    check(build, model, [(x,) for x in [*xs, torch.zeros(3, 4), torch.ones(5, 4)]], {"args": ({0: Dim("n")},)})


def test_unique_values(build: Build) -> None:
    model = Functions(
        plain=lambda x: torch.unique(x),
        everything=lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        counts=lambda x: torch.unique(x, return_counts=True),
        consecutive=lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        runs=lambda x: torch.unique_consecutive(x),
        # The backward of index_fill calls it.
        older=lambda x: torch.ops.aten._unique(x, True, True),
    )
    xs = [torch.randint(-3, 3, (n, 2)) for n in (7, 30, 1)] + [torch.full((4, 2), 5)]
    check(build, model, [(x,) for x in xs], {"args": ({0: Dim("n")},)})


def test_order_statistics(build: Build) -> None:
    """Medians are decomposed by us. What torch returns as a structure of its own comes as a namedtuple."""

    def model(x: Tensor) -> tuple[Any, ...]:
        none = x.new_zeros(0, 3)
        every = x.median(), x.median(dim=1), x.nanmedian(), x.nanmedian(dim=0).values, x.max(dim=-1)
        return *every, none.median(), none.nanmedian()

    xs = [torch.randn(n, m) for n, m in ((3, 5), (4, 4), (1, 1), (8, 2))]
    missing = torch.randn(4, 6)
    missing[1, 2] = missing[1, 4] = float("nan")
    archive = build(model, (xs[0],), dynamic_shapes={"x": {0: Dim("n", min=1), 1: Dim("m", min=1)}})
    for x in [*xs, missing]:
        got = archive(x)
        assert_close(pytree.tree_leaves(got), pytree.tree_leaves(model(x)))
        assert got[1]._fields == ("values", "indices")
        assert torch.equal(got[4].indices, x.max(dim=-1).indices)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_medians_of_any_size(build: Build, dtype: torch.dtype) -> None:
    """Of nothing, too: NaN, or what a cast makes of it."""

    def model(x: Tensor) -> tuple[Tensor, ...]:
        return x.median(), x.nanmedian(), x.flatten().median(), x[:, :0].median(), x[:, :0].nanmedian()

    archive = build(model, (torch.ones(4, 3, dtype=dtype),), dynamic_shapes={"x": {0: Dim("n", 0, 64)}})
    for size in (0, 1, 2, 3, 64):
        for missing in (0, 1, 2, 3 * size):
            x = (torch.randn(size, 3) * 9).abs().to(dtype)
            if dtype.is_floating_point:
                x.view(-1)[torch.randperm(x.numel())[:missing]] = torch.nan
            for actual, expected in zip(archive(x), model(x), strict=True):
                torch.testing.assert_close(torch.as_tensor(actual), expected, equal_nan=True)


def test_numbers_out_of_tensors(build: Build) -> None:
    model = Functions(
        arange=lambda n, x: torch.arange(n.max().item()),
        arange_of_tensor=lambda n, x: torch.arange(0, n.max()) + 1,
        zeros=lambda n, x: x.new_zeros(n.sum().item(), 2),
        scaled=lambda n, x: x * n[0].item() + x.max().item(),
        matmul=lambda n, x: torch.ones(1, n[0].item()) @ torch.ones(n[0].item(), 3),
        reduced=lambda n, x: (torch.ones(n[1].item()).sum(), torch.ones(4, n[0].item()).mean()),
        selected=lambda n, x: torch.index_select(torch.arange(n.max().item() + 3), 0, n),
        repeated=lambda n, x: torch.repeat_interleave(x, n),
        places=lambda n, x: torch.repeat_interleave(n),
        chained=lambda n, x: torch.cat([torch.zeros(n[0].item()), torch.zeros(n[0].item()), torch.ones(n[1].item())]),
    )
    calls = [(torch.tensor(n), torch.randn(len(n))) for n in ([4, 6, 1], [1, 2], [9, 3, 2, 7])]
    n = Dim("n", min=2)
    check(build, model, calls, {"args": ({0: n}, {0: n})})


def test_lists_of_numbers(build: Build) -> None:
    def split(values: Tensor, lengths: Tensor) -> tuple[Any, ...]:
        a, b = lengths.tolist()
        torch._check_is_size(a)
        torch._check_is_size(b)
        torch._check(a + b == values.shape[0], lambda: "the lengths must add up to the values")
        first, second = torch.split(values, [a, b])
        return first * 2, second, torch.cat([second, first]), first.sum() + second.amax()

    def narrow(values: Tensor, lengths: Tensor) -> Tensor:
        start, length = lengths.tolist()
        torch._check(start >= 0)
        torch._check(length >= 0)
        torch._check(start + length <= values.shape[0])
        return values.narrow(0, start, length).cos()

    model = Functions(split=split, narrow=narrow)
    shapes = {"args": ({0: Dim("n")}, None)}
    calls = [(torch.randn(a + b), torch.tensor([a, b])) for a, b in ((3, 5), (1, 1), (2, 9), (1, 4))]
    archive = check(build, model, calls, shapes)
    with pytest.raises(ExecutionError, match="the lengths must add up to the values: the model checks"):
        archive(torch.randn(7), torch.tensor([3, 5]))
    with pytest.raises(ExecutionError, match=r"the model checks \w+ >= \d, got \w+ = -1 \(data-dependent: "):
        archive(torch.randn(7), torch.tensor([8, -1]))


def test_places_out_of_tensors_where_strides_are_sums(build: Build) -> None:
    """Rows of a concatenation are as long as its parts together."""

    def model(x: Tensor, y: Tensor, n: Tensor, padding: Tensor) -> tuple[Tensor, ...]:
        rows = torch.cat([x, y], 1) + 1
        place = n.item()
        before, behind = padding.tolist()
        torch._check(before >= 0)
        torch._check(behind >= 0)
        padded = F.pad(x, (before, behind)) * 2
        return rows[place], rows[place:], rows.relu()[:place].sum(0), padded[place:], padded[place]

    calls = [
        (torch.randn(6, a), torch.randn(6, b), torch.tensor(place), torch.tensor([b, a]))
        for a, b, place in ((3, 4, 0), (3, 4, 2), (1, 1, 5), (10, 7, 0), (7, 9, -1), (2, 30, 4))
    ]
    dims = {"x": {1: Dim("a", 1, 50)}, "y": {1: Dim("b", 1, 50)}}
    check(build, model, calls, dims)


def test_many_operators_over_selected_rows(build: Build) -> None:
    weight, table = torch.randn(3, 4), torch.randn(6, 4)

    def functions(x: Tensor, mask: Tensor) -> dict[str, Any]:
        rows = x[mask]
        return {
            "linear": F.linear(rows, weight).relu(),
            "gram": rows @ rows.t(),
            "reduced": (rows.mean(0), rows.abs().sum(), rows.prod(1)),
            "normed": F.layer_norm(rows, (4,)),
            "sorted": rows.sort(0).values,
            "scanned": rows.cumsum(0),
            "joined": torch.cat([rows, x]),
            "stacked": torch.stack([rows, rows * 2]),
            "viewed": rows.reshape(-1, 2) + 1,
            "again": rows[rows[:, 0] > 0],
            "scattered": torch.zeros_like(x).index_put((mask.nonzero().squeeze(1),), rows),
            "embedded": F.embedding((rows[:, 0] * 2).long().clamp(0, 5), table),
            "convolved": F.conv1d(rows[:, None], weight[:, None, :3]),
            "padded": F.pad(rows, (0, 0, 1, 2)),
            "ones": torch.ones(rows.shape[0], 2) + torch.arange(rows.shape[0])[:, None],
        }

    calls = [(torch.randn(n, 4), torch.rand(n) < 0.6) for n in (9, 4, 40)]
    for _, mask in calls:
        mask[0] = True
    archive = check(build, functions, calls, ({0: Dim("n")}, {0: Dim("n")}))
    # No row at all: what torch computes of nothing.
    x, nothing = torch.randn(5, 4), torch.zeros(5, dtype=torch.bool)
    got = archive(x, nothing)
    assert {k: tuple(v.shape) for k, v in got.items() if isinstance(v, Tensor)}["gram"] == (0, 0)
    assert_close(got["joined"], x)
    assert got["reduced"][0].isnan().all()


def test_what_fails_for_no_elements_says_so(build: Build) -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        chosen = x[x > 0]
        return chosen.argmax(), chosen

    archive = check(build, model, [(torch.tensor([3.0, -1.0, 5.0]),), (torch.tensor([-3.0, -1.0, 2.0]),)])
    with pytest.raises(ExecutionError, match=r"numel\(\) == 0: the model checks \w+ != 0, got \w+ = 0"):
        archive(-torch.ones(3))


# ---- checks ---------------------------------------------------------------------------------------------------------


class Front(nn.Module):
    """As many elements as the other argument says."""

    def forward(self, count: Tensor, x: Tensor) -> Tensor:
        n = count.item()
        torch._check(n >= 1)
        torch._check(n <= x.shape[0], lambda: "there are not so many elements")
        y: Tensor = x[:n] * 2
        return y


def test_checks_stay_with_their_words(build: Build) -> None:
    x = torch.randn(8)
    archive = build(Front(), (torch.tensor(3), x), dynamic_shapes={"x": {0: Dim("length")}, "count": None})
    for n in (1, 5, 8):
        assert torch.equal(archive(torch.tensor(n), x), x[:n] * 2)
    told = r"there are not so many elements: the model checks \w+ <= length, got length = 4, \w+ = 5 \(data-dependent"
    with pytest.raises(ExecutionError, match=told):
        archive(torch.tensor(5), torch.randn(4))
    with pytest.raises(ExecutionError, match=r"the model checks \w+ >= 1, got \w+ = 0 .*n = count.item\(\), \w+.py:"):
        archive(torch.tensor(0), x)
    # The process, and the model, go on.
    assert torch.equal(archive(torch.tensor(2), x), x[:2] * 2)


def test_sizes_that_torch_cannot_bound_are_refused() -> None:
    def model(count: Tensor, x: Tensor) -> Tensor:
        return x * 2 if count.item() > 3 else x

    with pytest.raises(CaptureError, match="data-dependent") as caught:
        aot_export(model, (torch.tensor(3), torch.randn(4)))
    assert "torch._check" in str(caught.value.hint)


# ---- backward -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduced", [True, False], ids=["loss_alone", "values_kept"])
def test_backward_over_sizes_out_of_data(build: Build, reduced: bool) -> None:
    def model(lengths: Tensor, w: Tensor, v: Tensor) -> Any:
        a, b = lengths.tolist()
        joined = torch.cat([torch.ones(a) * w, torch.ones(b) * w.square()])
        torch._check(a + b == v.shape[0])
        first, second = torch.split(v, [a, b])
        chosen = v[v > 0]
        loss = joined.sum() + first.square().sum() + second.sin().sum() + chosen.exp().sum()
        return loss if reduced else (loss, joined, first)

    def call(a: int, b: int) -> tuple[Tensor, Tensor, Tensor]:
        return torch.tensor([a, b]), torch.randn(1, requires_grad=True), torch.randn(a + b, requires_grad=True)

    archive = build(model, call(4, 9), mode="joint", dynamic_shapes={"lengths": None, "w": None, "v": {0: Dim("n")}})
    for lengths, w, v in (call(4, 9), call(1, 2), call(7, 3)):
        outputs = model(lengths, w, v)
        loss = outputs if reduced else outputs[0]
        wanted = torch.autograd.grad(loss, [w, v])
        got = archive(lengths, w.detach(), v.detach())
        assert_close(got["outputs"], pytree.tree_map(torch.Tensor.detach, outputs))
        assert_close([got["input_gradients"]["w"], got["input_gradients"]["v"]], list(wanted))


# ---- custom operators -----------------------------------------------------------------------------------------------


@torch.library.custom_op("aotpack_tests::above", mutates_args=())
def above(x: Tensor, limit: float) -> Tensor:
    return x[x > limit].clone()


@above.register_fake
def _(x: Tensor, limit: float) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("aotpack_tests::doubled", mutates_args=("x",))
def doubled(x: Tensor) -> None:
    x.mul_(2)


@torch.library.custom_op("aotpack_tests::twice_above", mutates_args=())
def twice_above(x: Tensor) -> Tensor:
    y = above(x, 0.0)
    doubled(y)
    return y


@twice_above.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("aotpack_tests::scaled", mutates_args=())
def scaled(x: Tensor, sizes: list[int]) -> Tensor:
    return x * x.new_ones([sum(sizes)])


@scaled.register_fake
def _(x: Tensor, sizes: list[int]) -> Tensor:
    return x.new_empty([sum(sizes)])


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    # Not what autograd would have found: that the operator's own backward is taken can be seen.
    return gradient.sum() * 3, None


scaled.register_autograd(_backward, setup_context=lambda ctx, inputs, output: None)


@torch.library.custom_op("aotpack_tests::by_numpy", mutates_args=())
def by_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


@by_numpy.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("aotpack_tests::by_pointer", mutates_args=())
def by_pointer(x: Tensor) -> Tensor:
    return x + float(x.data_ptr() == 0)


@by_pointer.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_custom_operators_are_traced_through(build: Build) -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        torch.ops.aotpack_tests.doubled(y)
        return torch.ops.aotpack_tests.above(x, 0.5), y, twice_above(x) - 1

    calls = [(torch.randn(n),) for n in (8, 3, 1, 100)]
    check(build, model, calls, {"x": {0: Dim("n")}})


def test_custom_operators_keep_their_backward(build: Build) -> None:
    def model(x: Tensor, sizes: Tensor) -> Tensor:
        return (torch.ops.aotpack_tests.scaled(x, sizes.tolist()) * x).sum()

    x = torch.randn((), requires_grad=True)
    archive = build(model, (x, torch.tensor([4, 8])), mode="joint")
    for sizes in ([4, 8], [1, 1], [20, 3]):
        x = torch.randn((), requires_grad=True)
        loss = model(x, torch.tensor(sizes))
        got = archive(x.detach(), torch.tensor(sizes))
        assert_close(got["outputs"], loss.detach())
        assert_close(got["input_gradients"]["x"], torch.autograd.grad(loss, x)[0])
    # Without gradients the same operator is inlined at capture.
    check(build, model, [(torch.tensor(2.0), torch.tensor([2, 3])), (torch.tensor(-1.0), torch.tensor([7, 0]))])


@pytest.mark.parametrize(("operator", "reason"), [(by_numpy, r"\.numpy\(\)"), (by_pointer, "data pointer")])
def test_custom_operators_that_leave_torch_are_refused(operator: Any, reason: str) -> None:
    with pytest.raises(
        CaptureError, match=rf"custom operator aotpack_tests::by_\w+ cannot be traced.*{reason}"
    ) as error:
        aot_export(lambda x: operator(x) + 1, (torch.randn(4),))
    assert "an archive has no Python" in str(error.value.hint)
    assert "test_data_sizes.py" in str(error.value)
