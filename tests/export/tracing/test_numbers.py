"""Ints, floats and bools that each call passes, and those that it returns, through archives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import aotpack
from aotpack import DYNAMIC, Dim
from aotpack.errors import AotpackError, CaptureError, InputError
from aotpack.export import BuildOptions, aot_export, build_archive, load_exported, without_weights
from aotpack.spec import DimRef, DType, TensorLeaf, ValueLeaf
from tests.export.conftest import Build, assert_close
from tests.support.torch_version import needs_torch

X = torch.rand(5, 3) + 0.1


def equal(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Compares with eager's answer: tensors closely, numbers exactly and with their types."""
    if isinstance(expected, tuple):
        assert isinstance(actual, tuple) and len(actual) == len(expected)
        for index, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
            try:
                equal(got, wanted, tolerance)
            except AssertionError as error:
                raise AssertionError(f"result {index}: {error}") from None
    elif isinstance(expected, Tensor):
        assert actual.dtype == expected.dtype
        if expected.is_floating_point() and not expected.isfinite().all():
            assert torch.allclose(actual, expected, rtol=tolerance, equal_nan=True)
        else:
            assert_close(actual, expected, tolerance)
    else:
        assert type(actual) is type(expected), f"{actual!r} instead of {expected!r}"
        close = isinstance(expected, float) and math.isclose(actual, expected, rel_tol=1e-14)
        both_nan = actual != actual and expected != expected
        assert actual == expected or close or both_nan, f"{actual!r} instead of {expected!r}"


def check(
    build: Build,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    shapes: Any,
    *calls: tuple[Any, ...],
    tolerance: float = 1e-5,
) -> Any:
    archive = build(function, args, dynamic_shapes=shapes)
    for call in (args, *calls):
        equal(archive(*call), function(*call), tolerance)
    return archive


# ---- ints -----------------------------------------------------------------------------------------------------------


def test_sizes_out_of_ints(build: Build) -> None:
    def function(x: Tensor, n: int) -> tuple[Tensor, ...]:
        return x[:n], x[n:], torch.arange(n), torch.full((n,), n), torch.zeros(n, 2) + n, x.sum() * torch.ones(2 * n)

    archive = check(build, function, (X, 3), {"n": Dim("n", 0, 5)}, *((X, n) for n in (0, 1, 2, 4, 5)))
    for wrong in (-1, 6):
        with pytest.raises(InputError, match=r"'n'.*\[0, 5\], got"):
            archive(X, wrong)


def test_any_int_bounds_a_slice(build: Build) -> None:
    calls = [(X, start, end) for start in (0, 3, 7, -1, -9) for end in (-2, 0, 4, 9)]
    shapes = {"n": DYNAMIC, "m": DYNAMIC}
    check(build, lambda x, n, m: (x[:n], x[n:], x[n:m] * 2), (X, 1, 3), shapes, *calls)


def test_the_signature_names_them() -> None:
    program = aot_export(lambda x, n: (x[:n], n + 1, n / 2, n > 2), (X, 3), dynamic_shapes={"n": Dim("rows", 0, 5)})
    x, n = program.signature.inputs
    assert (n.name, n.dtype, n.shape, n.number, n.dim) == ("n", DType.INT64, (), "int", "rows")
    assert x.number is None
    assert [spec.number for spec in program.signature.outputs] == [None, "int", "float", "bool"]
    assert [spec.dtype for spec in program.signature.outputs[1:]] == [DType.INT64, DType.FLOAT64, DType.BOOL]
    assert program.signature.outputs[0].shape == (DimRef("rows"), 3)
    assert program.signature.in_spec.args == (TensorLeaf(0), TensorLeaf(1))
    assert program.reference is not None
    assert [value.item() for value in program.reference.outputs[1:]] == [4, 1.5, True]
    assert program.reference.inputs[1].dtype == torch.int64


def test_arithmetic(build: Build) -> None:
    def function(n: int, m: int) -> tuple[Any, ...]:
        # fmt: off
        return (
            n + 1, n - m, n * m, n // 3, n % 3, -n, abs(n), max(n, m), min(n, 2), n**2, n / 2, n * 0.5, 1.5 - n,
            n > m, n == m, n != 3, n <= m, n & 6, n | 8, n ^ 5, n << 2, n >> 1, n, float(n),
        )
        # fmt: on

    calls = [(0, 0), (1, 1), (7, 7), (-5, 3), (-7, -7), (2**31 + 1, 5), (-(2**31) - 1, 2)]
    check(build, function, (3, 4), {"n": DYNAMIC, "m": "auto"}, *calls)


def test_beside_tensors(build: Build) -> None:
    def function(x: Tensor, n: int) -> tuple[Tensor, ...]:
        whole = (x * 100).long()
        return x * n, x + n, n - x, x / n, x.clamp(max=n), x > n, torch.full_like(x, n), whole * n, x**2 * n, whole + n

    check(build, function, (X, 3), {"n": DYNAMIC}, *((X, n) for n in (1, 2, -5, 100, 2**33 + 1)))


def test_branches_become_ranges_and_checks(build: Build) -> None:
    archive = check(build, lambda x, n: x * n if n > 2 else x - n, (X, 3), {"n": "n"}, (X, 4), (X, 10))
    with pytest.raises(InputError, match=r"'n' must be (at least 3|>= 3), got 2"):
        archive(X, 2)
    even = check(build, lambda x, n: x * n if n % 2 == 0 else x - n, (X, 4), {"n": Dim("n")}, (X, 2), (X, 50))
    with pytest.raises(InputError, match="2"):
        even(X, 3)
    with pytest.raises(CaptureError, match="'n'"):
        aot_export(lambda x, n: x * n if n == 3 else x - n, (X, 3), dynamic_shapes={"n": Dim("n")})
    for function, said in [
        (lambda x, n: x * n if n > 2 else x - n, "must be at least 3"),
        (lambda x, n: x * n if n > 0 else x - n, "n = 0 does not work"),
        (lambda x, n: x * n if n % 2 == 0 else x - n, "must be a multiple of 2"),
    ]:
        with pytest.raises(CaptureError, match=said):
            aot_export(function, (X, 4), dynamic_shapes={"n": Dim("n", 0, 10)})


def test_sizes_meet_ints(build: Build) -> None:
    shapes = {"x": {0: "rows"}, "n": Dim("n", 1, 100)}
    view = check(build, lambda x, n: x.view(n, -1), (torch.rand(6, 2), 3), shapes, (torch.rand(8, 2), 8))
    with pytest.raises(InputError, match="rows"):
        view(torch.rand(6, 2), 5)
    same = {"x": {0: "rows"}, "n": "rows"}
    archive = check(build, lambda x, n: x * torch.arange(n)[:, None], (X, 5), same, (torch.rand(7, 3), 7))
    with pytest.raises(InputError, match="rows"):
        archive(X, 4)


def test_functions_of_math(build: Build) -> None:
    def function(x: Tensor, n: int) -> tuple[Any, ...]:
        # fmt: off
        return (
            x * math.sqrt(n), math.sqrt(n), math.floor(n * 0.3), math.ceil(n * 0.3), math.trunc(n * 0.3),
            round(n * 0.3), math.log2(n), math.log(n), math.log10(n), math.log(n, 3), math.exp(n * 0.1),
            math.sin(n), math.cos(n), math.atan(n), math.tanh(n), math.pow(n, 0.5), math.fabs(n), math.radians(n),
            x.sum() + math.cosh(n * 0.01),
        )
        # fmt: on

    check(build, function, (X, 3), {"n": Dim("n", 1, 1000)}, *((X, n) for n in (1, 2, 7, 1000)))


def test_python_code_that_needs_dynamo(build: Build) -> None:
    root = math.sqrt
    shapes = {"n": Dim("n", 1, 1000)}
    check(build, lambda x, n: (x * int(n * 0.3), x + root(n)), (X, 7), shapes, (X, 1), (X, 2), (X, 1000))


# ---- floats and bools -----------------------------------------------------------------------------------------------


@needs_torch(2, 13, "asks for the value of a float that varies")
def test_floats(build: Build) -> None:
    def function(x: Tensor, f: float) -> tuple[Any, ...]:
        # fmt: off
        return (
            x * f, x + f, f - x, x / f, x.double().clamp(max=f), x**f, x > f, x.double() * f,
            f, f * 2 + 1, f / 3, -f, abs(f), f > 0.5, f**2, 1 / f, torch.full((2,), f, dtype=torch.float64),
        )
        # fmt: on

    values = (-1.7, 0.1, 1e-30, 1e100, math.inf, -math.inf, math.nan, 1e-300)
    check(build, function, (X, 0.3), {"f": DYNAMIC}, *((X, value) for value in values))


def test_scores_over_a_temperature(build: Build) -> None:
    def function(x: Tensor, temperature: float, n: int) -> tuple[Tensor, ...]:
        return torch.softmax(x / temperature, -1), torch.softmax(x * n, -1), x.sum() * temperature

    calls = ((X, 1.0, 1), (X, 0.01, 0), (X, -1.0, -5))
    check(build, function, (X, 0.7, 2), {"temperature": DYNAMIC, "n": DYNAMIC}, *calls)


@needs_torch(2, 13, "asks for the value of a float that varies")
def test_functions_of_floats(build: Build) -> None:
    def function(x: Tensor, f: float) -> tuple[Any, ...]:
        return x * math.sqrt(f), math.floor(f), math.ceil(f), round(f), math.cos(f), -1 / f**1.0

    check(build, function, (X, 0.3), {"f": DYNAMIC}, (X, 17.5), (X, 1e6), (X, 2.5))


def test_halves_meet_numbers_in_single_precision(build: Build) -> None:
    def function(b: Tensor, h: Tensor, n: int, f: float) -> tuple[Tensor, ...]:
        return b * n, h + n, h * f, b / f, b.clamp(max=f), torch.full_like(b, f)

    b, h = X.bfloat16(), X.half()
    shapes = {"n": Dim("n", -9, 9999), "f": DYNAMIC}
    archive = build(function, (b, h, 257, 0.3), dynamic_shapes=shapes)
    for n, f in ((257, 0.3), (1, 0.1), (-3, -7.77)):
        for got, wanted, eps in zip(archive(b, h, n, f), function(b, h, n, f), (8, 11, 11, 8, 8, 8), strict=True):
            assert_close(got, wanted, 2.0 ** -(eps + 1))


def test_bools(build: Build) -> None:
    def function(x: Tensor, b: bool) -> tuple[Any, ...]:
        return x * b, b, torch.full((2,), b), torch.where(torch.full((), b), x, -x), x + b

    check(build, function, (X, True), {"b": DYNAMIC}, (X, False), (X, True))


@pytest.mark.parametrize("value", [True, 0.5])
def test_floats_and_bools_decide_no_branch(value: bool | float) -> None:
    with pytest.raises(CaptureError) as caught:
        aot_export(lambda x, v: x if v else -x, (X, value), dynamic_shapes={"v": DYNAMIC})
    assert "'v'" in str(caught.value.hint)
    assert "test_numbers.py" in str(caught.value)


# ---- where they stand -----------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Settings:
    scale: float
    count: int


def test_inside_structures(build: Build) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: Tensor, settings: Settings, extra: dict[str, Any], *, flag: bool = True) -> dict[str, Any]:
            y = self.linear(x)[: settings.count] * settings.scale * extra["factor"]
            return {"y": y + flag, "count": settings.count * 2, "constant": extra["constant"], "rows": x.shape[0]}

    model = Model().eval()
    shapes = {
        "x": {0: Dim("rows", 1, 64)},
        "settings": {"scale": DYNAMIC, "count": Dim("count", 0, 64)},
        "extra.factor": DYNAMIC,
        "flag": DYNAMIC,
    }
    args = (X, Settings(0.5, 2), {"factor": 1.5, "constant": 7})
    archive = build(model, args, {"flag": True}, dynamic_shapes=shapes)
    for rows, scale, count, factor, flag in ((5, 0.5, 2, 1.5, True), (9, -2.0, 9, 0.25, False), (1, 3.0, 0, 1.0, True)):
        x = torch.rand(rows, 3)
        call = (x, Settings(scale, count), {"factor": factor, "constant": 7})
        got, wanted = archive(*call, flag=flag), model(*call, flag=flag)
        assert_close(got["y"], wanted["y"])
        assert (got["count"], got["constant"], got["rows"]) == (2 * count, 7, rows)


def test_numbers_alone(build: Build) -> None:
    check(build, lambda n: n + 1, (3,), {"n": DYNAMIC}, (-7,), (0,))
    check(build, lambda f: f * 0.5, (3.0,), {"f": DYNAMIC}, (-7.1,), (math.inf,))


def test_sizes_and_numbers_are_results(build: Build) -> None:
    def function(x: Tensor, n: int) -> tuple[Any, ...]:
        return (
            x.shape[0],
            x.shape[0] * x.shape[1],
            x.shape[0] / x.shape[1],
            x.numel() > 6,
            n,
            4,
            2.5,
            True,
            "text",
            None,
        )

    archive = build(function, (X, 9), dynamic_shapes={"x": ("a", Dim("b", 1))})
    for shape in ((5, 3), (1, 1), (2, 7), (0, 4)):
        assert archive(torch.rand(shape), 9) == function(torch.rand(shape), 9)
    program = aot_export(function, (X, 9))
    assert list(program.signature.out_spec.items) == [  # type: ignore[union-attr]
        ValueLeaf(value) for value in function(X, 9)
    ]


def test_numpy_and_files(build: Build) -> None:
    archive = build(lambda x, n, f: (x[:n] * f, n), (X, 3, 0.5), dynamic_shapes={"n": Dim("n", 0, 5), "f": DYNAMIC})
    got, count = archive(X.numpy(), np.int64(2), np.float64(0.25))
    assert np.allclose(got, X[:2].numpy() * 0.25) and count == 2 and type(count) is int
    with pytest.raises(AotpackError):
        archive(X, 2.0, 0.25)


def test_exported_programs_with_ints(tmp_path: Path) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor, n: int) -> Tensor:
            return x * n

    exported = torch.export.export(Model(), (X, 3), dynamic_shapes=(None, torch.export.Dim.DYNAMIC))
    torch.export.save(exported, tmp_path / "model.pt2")
    program = load_exported(tmp_path / "model.pt2")
    assert program.signature.inputs[1].number == "int"
    assert program.signature.inputs[1].dim == "n"


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(lambda x: torch.rand_like(x).floor(), id="rand"),
        pytest.param(lambda x: torch.randint_like(x, 0, 1), id="randint"),
        pytest.param(lambda x: torch.bernoulli(torch.ones_like(x)), id="bernoulli"),
        pytest.param(lambda x: torch.empty_like(x).uniform_(0, 1).floor(), id="uniform"),
        pytest.param(lambda x: torch.dropout(x, 0.5, True) * 0, id="dropout"),
    ],
)
def test_numbers_beside_random_ones(build: Build, noise: Callable[[Tensor], Tensor]) -> None:
    """Their loops are fused where two dims are dynamic; a bool and a comparison are conditions in such a loop."""

    def function(x: Tensor, f: float, n: int, flag: bool) -> Tensor:
        return x * f + n + flag + (n > 2) + noise(x)

    shapes = {"x": (Dim("a", 0, 8), Dim("b", 1, 9)), "f": DYNAMIC, "n": DYNAMIC, "flag": DYNAMIC}
    calls = [
        (torch.rand(a, b), 2.5, n, flag) for a, b, n, flag in ((0, 1, 2, True), (1, 1, 3, False), (8, 9, -1, True))
    ]
    check(build, function, (X, 0.5, 3, True), shapes, *calls)


def test_the_used_part_of_a_cache(build: Build) -> None:
    calls = [(torch.rand(2, 3, 16, 4), length) for length in (1, 2, 15, 16)]
    shapes = {"length": Dim("length", 1, 16)}
    for function in (
        lambda keys, length: keys.narrow(2, 0, length),
        lambda keys, length: keys[:, :, :length] * 2,
        lambda keys, length: keys.narrow(2, 16 - length, length).sum(2),
    ):
        archive = check(build, function, (torch.rand(2, 3, 16, 4), 5), shapes, *calls)
        for wrong in (0, 17):
            with pytest.raises(InputError, match=r"'length'.*\[1, 16\], got"):
                archive(calls[0][0], wrong)


def test_a_backward_with_numbers(build: Build) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(3))

        def forward(self, x: Tensor, n: int, f: float) -> Tensor:
            return (x[:n] * self.weight * f).sum()

    model = Model()
    shapes = {"n": Dim("n", 1, 5), "f": DYNAMIC}
    archive = build(model, (X, 3, 0.5), mode="joint", dynamic_shapes=shapes)
    for n, f in ((3, 0.5), (1, -2.0), (5, 0.1)):
        result = archive(X, n, f)
        assert_close(result["outputs"], model(X, n, f).detach())
        assert_close(result["gradients"]["weight"], (X[:n] * f).sum(0))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def scaled(self, x: Tensor, factor: float, count: int) -> Tensor:
        return self.linear(x)[:count] * factor


def test_other_methods(tmp_path: Path, cache_dir: Path) -> None:
    model = Scaled().eval()
    shapes = {"factor": DYNAMIC, "count": Dim("count", 0, 5)}
    program = aot_export(model, (X, 0.5, 2), method="scaled", dynamic_shapes=shapes)
    build_archive(program, tmp_path / "model.aotpack", options=BuildOptions(cache_dir=cache_dir))
    archive = aotpack.load(tmp_path / "model.aotpack")
    assert_close(archive.entry("scaled")(X, -2.0, 4), model.scaled(X, -2.0, 4).detach())


def test_models_whose_weights_are_streamed(tmp_path: Path, cache_dir: Path) -> None:
    class Whole(Scaled):
        forward = Scaled.scaled  # type: ignore[assignment]

    model = Whole().eval()
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    with without_weights():
        empty = Whole().eval()
    shapes = {"factor": DYNAMIC, "count": Dim("count", 0, 5)}
    program = aot_export(empty, (X, 0.5, 2), dynamic_shapes=shapes, weights=tmp_path / "weights.safetensors")
    build_archive(program, tmp_path / "model.aotpack", options=BuildOptions(cache_dir=cache_dir))
    archive = aotpack.load(tmp_path / "model.aotpack")
    assert_close(archive(X, -2.0, 4), model.scaled(X, -2.0, 4).detach())
