"""The seed document 004: dynamic shapes, sizes out of data, numbers in and out. Each test bears its scenario's name.

One archive serves all sizes: where the document compiles once and expects no recompilation, a test here builds once
and calls with other sizes and other data. What needs custom operators is in test_dynamic_shapes_custom.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import torch.utils._pytree as pytree
from torch import Tensor, nn

from aotpack import DYNAMIC, Dim
from aotpack.errors import ExecutionError, InputError
from tests.support.torchless import RemoteModel

Build = Callable[..., RemoteModel]


def check(build: Build, function: Any, *calls: tuple[Any, ...], shapes: Any = None, exact: bool = False) -> RemoteModel:
    """Builds for the first call; the archive answers all calls as eager does."""
    archive = build(function, calls[0], dynamic_shapes=shapes)
    for args in calls:
        compare(archive(*args), function(*args), exact=exact)
    return archive


def compare(got: Any, expected: Any, *, exact: bool = False) -> None:
    answers, wanted = pytree.tree_leaves(got), pytree.tree_leaves(expected)
    assert len(answers) == len(wanted)
    for a, e in zip(answers, wanted, strict=True):
        if not isinstance(e, Tensor):
            assert type(a) is type(e)
            assert a == pytest.approx(e, rel=1e-12, nan_ok=True)
            continue
        assert a.shape == e.shape
        assert a.dtype == e.dtype
        tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {}
        torch.testing.assert_close(a, e, equal_nan=True, **tolerance)


# ---- sizes out of data ----------------------------------------------------------------------------------------------


def test_arange_dynamic(build: Build) -> None:
    def function(a: Tensor) -> Tensor:
        steps = torch.arange(0, a.max(), device=a.device).type_as(a)
        return ~steps.repeat(a.numel(), 1).lt(a.unsqueeze(1))

    calls = [(torch.randint(10, 30, (n,)),) for n in (10, 3, 25)]
    calls[0][0][0] = 29
    check(build, function, *calls, shapes={"a": {0: Dim("n", min=1)}})


def test_bool_mask_nobreak(build: Build) -> None:
    def function(x: Tensor, b: Tensor) -> Tensor:
        return (x[b] * 2).sum()

    first = (torch.randn(5), torch.tensor([True, True, False, False, True]))
    others = [(torch.randn(n), torch.rand(n) < share) for n, share in ((5, 0.0), (8, 1.0), (50, 0.5))]
    check(build, function, first, *others, shapes=({0: Dim("n")}, {0: Dim("n")}))


def test_adaptive_max_pool3d_with_indices(build: Build) -> None:
    def function(y: Tensor) -> tuple[Tensor, Tensor]:
        return F.adaptive_max_pool3d_with_indices(y, 5)

    d, h, w = (Dim(name, min=1) for name in "dhw")
    sizes = ((9, 10, 9, 8, 6), (9, 10, 5, 13, 11), (9, 10, 3, 5, 20))
    check(build, function, *[(torch.rand(s),) for s in sizes], shapes={"y": {2: d, 3: h, 4: w}}, exact=True)


def test_unwrap_storage_didnt_work_repro(build: Build) -> None:
    def function() -> Tensor:
        full = torch.full((), 11)
        n = full.item()
        torch._check(n >= 0)
        return torch.full((n,), 0)

    check(build, function, ())


def test_nonzero_size_factory_nobreak(build: Build) -> None:
    def function(x: Tensor, b: Tensor) -> Tensor:
        return x.new_zeros(torch.nonzero(b).size(0))

    masks = ([1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1])
    check(build, function, *[(torch.randn(5), torch.tensor(m, dtype=torch.bool)) for m in masks])


def test_nonzero_no_realloc(build: Build) -> None:
    """The split must have all of what was found: the number of places is that of the other tensor's elements."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = x.nonzero()
        torch._check(z.size(0) == y.size(0), lambda: "as many places as elements")
        return torch.split(z, [y.size(0)])

    calls = [
        (torch.tensor([1, 0, 1, 1, 0, 1, 0]), torch.randn(4)),
        (torch.tensor([0, 1, 0, 0, 1, 0, 0]), torch.randn(2)),
    ]
    archive = check(build, function, *calls, shapes=(None, {0: Dim("m")}))
    with pytest.raises(ExecutionError, match=r"the model checks \w+ == m, got m = 3, \w+ = 4 \(data-dependent"):
        archive(torch.tensor([1, 0, 1, 1, 0, 1, 0]), torch.randn(3))


def test_noops_tensor_repropagate(build: Build) -> None:
    def function(x: Tensor) -> Tensor:
        b = torch.ops.prims.convert_element_type.default(x, torch.int64)
        return b.nonzero() * 2

    check(build, function, (torch.tensor([0, 4, 2, 0, 1]),), (torch.tensor([0, 0, 0, 0, 0]),), (torch.ones(5).long(),))


def test_unbacked_index_select(build: Build) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.index_select(torch.ones(x.item()), 0, torch.tensor([0, 2, 1]))

    archive = check(build, function, (torch.tensor(5),), (torch.tensor(3),), (torch.tensor(40),))
    with pytest.raises(ExecutionError, match="out of range"):
        archive(torch.tensor(2))


def test_return_unbacked_view_split(build: Build) -> None:
    def function(values: Tensor, length_per_key: Tensor) -> tuple[Tensor, ...]:
        u0, u1 = length_per_key.tolist()
        torch._check(u0 >= 0)
        torch._check(u1 >= 0)
        torch._check(u0 + u1 == values.shape[0], lambda: "the lengths are those of the values")
        v1, v2 = torch.functional.split(values, [u0, u1])
        return v1, v2

    calls = [(torch.randn(a + b), torch.tensor([a, b])) for a, b in ((3, 5), (2, 6), (9, 1))]
    archive = check(build, function, *calls, shapes=({0: Dim("n")}, None), exact=True)
    with pytest.raises(ExecutionError, match="the lengths are those of the values: the model checks"):
        archive(torch.randn(8), torch.tensor([3, 4]))


def test_unbacked_matmul(build: Build) -> None:
    def function(x: Tensor) -> Tensor:
        y = x.item()
        return torch.ones(1, y) @ torch.ones(y, 1)

    check(build, function, *[(torch.tensor(n),) for n in (5, 1, 0, 100)])


def test_unbacked_reduction(build: Build) -> None:
    """The document expects this to fail on x86."""

    def function(x: Tensor) -> Tensor:
        return torch.ones(x.item()).sum()

    archive = check(build, function, *[(torch.tensor(n),) for n in (5, 1, 0, 1000)])
    with pytest.raises(ExecutionError, match=r"the model checks \w+ >= 0, got \w+ = -1 \(data-dependent"):
        archive(torch.tensor(-1))


def test_cat_unbacked_duplicate_size(build: Build) -> None:
    def function(x: Tensor) -> Tensor:
        s, s2 = x.tolist()
        g, g2 = torch.zeros(s), torch.ones(s2)
        return torch.ops.aten.cat.default([g, g, g2])

    check(build, function, *[(torch.tensor(sizes),) for sizes in ([4, 6], [1, 0], [0, 3])])


def cat_of_products(x: Tensor, w: Tensor) -> Tensor:
    a, b = x.tolist()
    return torch.cat([torch.ones(a) * w, torch.ones(b) * w])


def check_gradient(archive: RemoteModel, function: Callable[..., Any], *sizes: tuple[int, int]) -> None:
    for pair in sizes:
        x, w = torch.tensor(pair), torch.randn(1, requires_grad=True)
        outputs = function(x, w)
        loss = pytree.tree_leaves(outputs)[0]
        loss.backward()
        got = archive(x, w.detach())
        compare(got["outputs"], pytree.tree_map(Tensor.detach, outputs))
        compare(got["input_gradients"]["w"], w.grad)


def test_unbacked_cat_backwards(build: Build) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return cat_of_products(x, w).sum()

    archive = build(function, (torch.tensor([4, 9]), torch.randn(1, requires_grad=True)), mode="joint")
    check_gradient(archive, function, (4, 9), (1, 1), (20, 3))


def test_unbacked_cat_backwards_save_data_dependent(build: Build) -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        r = cat_of_products(x, w)
        return r.sum(), r

    archive = build(function, (torch.tensor([4, 9]), torch.randn(1, requires_grad=True)), mode="joint")
    check_gradient(archive, function, (4, 9), (2, 1), (30, 5))


def test_item_unbacked_stride_nobreak(build: Build) -> None:
    def function(x: Tensor) -> Tensor:
        a = x.item()
        torch._check(a >= 1)
        torch._check(a <= 10, lambda: "ten at most")
        return torch.ones(a, a)

    archive = check(build, function, *[(torch.tensor([n]),) for n in (5, 1, 10)])
    assert archive(torch.tensor([4])).stride() == (4, 1)
    with pytest.raises(ExecutionError, match=r"ten at most: the model checks \w+ <= 10, got \w+ = 11"):
        archive(torch.tensor([11]))
    with pytest.raises(ExecutionError, match=r"the model checks \w+ >= 1, got \w+ = 0"):
        archive(torch.tensor([0]))


# ---- numbers --------------------------------------------------------------------------------------------------------


def test_item_nobreak(build: Build) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.empty(x.item())

    archive = build(function, (torch.tensor([3]),), check=False)  # what is in it is undefined
    assert [tuple(archive(torch.tensor([n])).shape) for n in (3, 0, 17)] == [(3,), (0,), (17,)]


def test_item_bool_nobreak(build: Build) -> None:
    def function(x: Tensor) -> bool:
        return x.item()  # type: ignore[return-value]

    check(build, function, (torch.tensor([True]),), (torch.tensor([False]),))


def test_item_zeros_nobreak(build: Build) -> None:
    def function(x: Tensor) -> Tensor:
        y = x.item()
        torch.empty(y)
        return x.new_zeros(y)

    check(build, function, *[(torch.tensor([n]),) for n in (3, 1, 0, 9)])


def test_item_return(build: Build) -> None:
    def function(x: Tensor) -> int:
        return x.item() + x.item()  # type: ignore[return-value]

    check(build, function, *[(torch.tensor([n]),) for n in (3, -7, 1 << 40)])


@pytest.mark.parametrize("infinity", [math.inf, -math.inf], ids=["inf", "neginf"])
def test_float_item_inf(infinity: float, build: Build) -> None:
    """test_float_item_inf and test_float_item_neginf."""

    def function(x: Tensor) -> bool:
        return x.item() == infinity

    archive = build(function, (torch.tensor([3.0]),))
    for value in (3.0, math.inf, -math.inf, math.nan):
        assert archive(torch.tensor([value])) is (value == infinity)


def test_float_item_return(build: Build) -> None:
    """The document expects this to fail."""

    def function(x: Tensor) -> float:
        return x.item()  # type: ignore[return-value]

    check(build, function, *[(torch.tensor([value]),) for value in (3.0, -0.25, math.inf, math.nan)])


def test_item_materialize(build: Build) -> None:
    def function(x: Tensor) -> list[int]:
        return x.sum(dim=0).view(4).tolist()  # type: ignore[no-any-return]

    check(build, function, (torch.ones(3, 4, dtype=torch.int64),), (torch.randint(-9, 9, (3, 4)),))


def test_shape_as_constant_reciprocal_float_exp(build: Build) -> None:
    def function(x: Tensor, a: int) -> tuple[Tensor, float]:
        return x, -1 / a**1.0

    shapes = {"x": {0: Dim("n")}, "a": Dim("a", min=1)}
    check(build, function, *[(torch.rand(n, 20), n) for n in (10, 1, 33)], shapes=shapes)


def test_float_is_integer(build: Build) -> None:
    """The branch that the example takes is a condition of the call."""

    def function(x: Tensor, mul: int) -> float:
        size = x.size(-1)
        m = size / mul
        return m if m.is_integer() else size

    shapes = {"x": {3: Dim("n")}, "mul": None}
    archive = check(build, function, *[(torch.randn(3, 6, 4, n), 2) for n in (2, 4, 10)], shapes=shapes)
    with pytest.raises(InputError, match=r"the call must satisfy floor\(n/2\) == n/2, got 'n' = 3"):
        archive(torch.randn(3, 6, 4, 3), 2)


@pytest.mark.parametrize("operation", ["add", "mul", "div"])
def test_arithmetic_constant_folding(operation: str, build: Build) -> None:
    def function(x: int) -> Tensor:
        constant = torch.zeros(3) if operation == "add" else torch.ones(3)
        return {"add": lambda: x + constant, "mul": lambda: x * constant, "div": lambda: x / constant}[operation]()

    check(build, function, (3,), (-5,), (0,), shapes={"x": DYNAMIC})


def test_sub_constant_folding(build: Build) -> None:
    def function(x: int) -> Tensor:
        return x - torch.zeros(3)

    check(build, function, (3,), (-5,), (0,), shapes={"x": DYNAMIC})


def test_full_symbolic_value(build: Build) -> None:
    def function(a: int) -> tuple[Tensor, Tensor]:
        return torch.full((3,), a), torch.full((3,), torch.sym_float(a))

    check(build, function, (5,), (-2,), (1 << 20,), shapes={"a": DYNAMIC})


OPERATIONS = ("sqrt", "sin", "cos", "cosh", "sinh", "tan", "tanh", "asin", "acos", "atan")


def math_operations(x: Tensor, a: int, b: int) -> dict[str, Tensor]:
    """Each function of a size-like int; inverse sine and cosine are of one in [-1, 1]."""
    return {name: x + getattr(math, name)(b if name in ("asin", "acos") else a) for name in OPERATIONS}


@pytest.fixture(scope="module")
def math_archive(torchless: Any, tmp_path_factory: pytest.TempPathFactory, cache_dir: Any) -> RemoteModel:
    from aotpack.export import BuildOptions, aot_export, build_archive

    shapes = {"x": {0: Dim("n")}, "a": Dim("a", 0, 40), "b": Dim("b", -1, 1)}
    program = aot_export(math_operations, (torch.rand(10), 12, -1), dynamic_shapes=shapes)
    path = tmp_path_factory.mktemp("math") / "math.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    loaded: RemoteModel = torchless.load(path)
    return loaded


@pytest.mark.parametrize("operation", OPERATIONS)
def test_math_ops(operation: str, math_archive: RemoteModel) -> None:
    for n, a, b in ((10, 12, -1), (3, 0, 0), (20, 31, 1)):
        x = torch.rand(n)
        compare(math_archive(x, a, b)[operation], math_operations(x, a, b)[operation])


# ---- arithmetic of sizes --------------------------------------------------------------------------------------------


def test_floor(build: Build) -> None:
    def function(x: Tensor) -> Tensor:
        n = x.size(-1)
        return x + int(n * 0.2) + 1

    check(build, function, *[(torch.rand(n),) for n in (5, 8, 1, 24, 25)], shapes={"x": {0: Dim("n")}})


def test_pad_dynamic(build: Build) -> None:
    def same(x: int, k: int, s: int, d: int) -> int:
        return max((math.ceil(x / s) - 1) * s + (k - 1) * d + 1 - x, 0)

    def function(x: Tensor) -> Tensor:
        height, width = x.size()[-2:]
        pad_h, pad_w = same(height, 5, 2, 1), same(width, 5, 2, 1)
        if pad_h > 0 or pad_w > 0:
            x = F.pad(x, [pad_w // 2, pad_w - pad_w // 2, pad_h // 2, pad_h - pad_h // 2])
        return x

    sizes = ((110, 110), (111, 64), (7, 8), (2, 3))
    shapes = {"x": {2: Dim("h", min=1), 3: Dim("w", min=1)}}
    check(build, function, *[(torch.randn(2, 4, *s),) for s in sizes], shapes=shapes, exact=True)


def test_slice_scatter(build: Build) -> None:
    def function(i: Tensor) -> Tensor:
        s3 = i.size(0)
        x, y = torch.ones(64, s3), torch.ones(64, s3 // 2) * 2
        return torch.slice_scatter(x, y, 1, s3 // 2, 2 * (s3 // 2))

    check(build, function, *[(torch.randn(n),) for n in (16, 5, 40, 2)], shapes={"i": {0: Dim("n")}})


def test_slice_index_changing_sign(build: Build) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        y0, y1 = y.shape
        return x[: (y0 - y1)].clone()

    shapes = ({0: Dim("n"), 1: Dim("m")}, {0: Dim("a"), 1: Dim("b")})
    x = torch.randn(32, 32)
    calls = [(x, torch.randn(a, b)) for a, b in ((16, 2), (2, 16), (5, 5), (40, 1), (1, 40))]
    check(build, function, *calls, shapes=shapes, exact=True)


def test_sym_stride_lowering(build: Build) -> None:
    def function(x: Tensor) -> Tensor:
        return x * (x + 1).stride(0)

    shapes = {"x": {0: Dim("n"), 1: Dim("m", min=1)}}
    check(build, function, *[(torch.randn(s),) for s in ((32, 32), (4, 7), (1, 3), (2, 1))], shapes=shapes)


def test_abs(build: Build) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        y0, y1 = y.shape
        return x[: abs(y0 - y1)] * abs(y0 - y1)

    shapes = ({0: Dim("n"), 1: Dim("m")}, {0: Dim("a"), 1: Dim("b")})
    x = torch.randn(32, 32)
    check(build, function, *[(x, torch.randn(a, b)) for a, b in ((16, 2), (2, 16), (3, 3), (50, 1))], shapes=shapes)


def test_interpolate_ceil_eq(build: Build) -> None:
    def function(t: Tensor) -> Tensor:
        s0, s2, s3 = t.size()
        height = math.ceil((2 * ((s2 - 1) // 8) + 2) / 1)
        width = math.ceil((2 * ((s3 - 1) // 8) + 2) / 1)
        x = torch.zeros((s0, 64, height, width), dtype=torch.bfloat16)
        return F.interpolate(x, scale_factor=2, mode="nearest")

    shapes = {"t": {0: Dim("a", min=1), 1: Dim("b", min=1), 2: Dim("c", min=1)}}
    check(build, function, *[(torch.randn(s),) for s in ((4, 16, 18), (2, 8, 33), (1, 1, 9))], shapes=shapes)


def test_full_recompiles(build: Build) -> None:
    """The document calls with two lengths and counts compilations; here one archive serves them."""

    def function(x: Tensor) -> Tensor:
        _, length = x.shape
        return torch.full((length, length), torch.finfo(torch.float16).min)

    calls = [(torch.randint(10, 1000, (2, n)),) for n in (3, 4, 1, 40)]
    check(build, function, *calls, shapes={"x": {1: Dim("length")}}, exact=True)


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
def test_sort_dynamic_shape_with_check(descending: bool, build: Build) -> None:
    def function(a: Tensor) -> tuple[Tensor, Tensor]:
        torch._check(a.shape[-1] <= 256)
        values, places = a.sort(dim=-1, stable=True, descending=descending)
        return values, places

    def call(width: int) -> tuple[Tensor]:
        a = torch.rand(10, width)
        a[:, 10:20] = 1.0
        a[:, 30:40] = 1.0
        return (a,)

    shapes = {"a": {1: Dim("width")}}
    archive = check(build, function, *[call(n) for n in (128, 120, 256, 1)], shapes=shapes, exact=True)
    with pytest.raises(InputError, match=r"'width'.*256"):
        archive(*call(257))


def test_kwargs_dynamic_shapes(build: Build) -> None:
    """Of the common template; the document expects it to fail on the CPU."""

    class Scaled(nn.Module):
        def forward(self, x: Tensor, *, scale: Tensor, shift: float = 1.0) -> Tensor:
            return torch.add(x.softmax(dim=-1), scale, alpha=2) + shift

    function = Scaled()
    n = Dim("n")
    shapes = {"x": {1: n}, "scale": {0: n}, "shift": DYNAMIC}
    given = {"scale": torch.randn(5), "shift": 1.5}
    archive = build(function, (torch.randn(3, 5),), given, dynamic_shapes=shapes)
    for size, shift in ((5, 1.5), (1, -2.0), (9, 0.0)):
        x, scale = torch.randn(3, size), torch.randn(size)
        compare(archive(x, scale=scale, shift=shift), function(x, scale=scale, shift=shift))
