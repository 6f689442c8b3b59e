"""Canaries for what dynamic sizes touch of torch's private interfaces, and what is printed of sizes as C++."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from torch.utils._sympy.functions import (
    FloatPow,
    FloorDiv,
    IntTrueDiv,
    Max,
    Min,
    OpaqueUnaryFn_exp,
    OpaqueUnaryFn_sin,
    PowByNatural,
    ToFloat,
)

import aotpack
from aotpack import Dim
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.diagnostics.check_messages import condition_key
from aotpack.export.torch_compat.inductor.size_printer import sizes_in_cpp


class TestSignatures:
    def test_size_variables(self) -> None:
        from torch._inductor.sizevars import SizeVarAllocator

        for name, parameters in {
            "evaluate_min": ["self", "left", "right"],
            "evaluate_max": ["self", "left", "right"],
            "guard_int_seq": ["self", "left"],
            "statically_known_leq": ["self", "left", "right"],
        }.items():
            assert list(inspect.signature(getattr(SizeVarAllocator, name)).parameters) == parameters

    def test_decompositions(self) -> None:
        from torch._inductor import compile_fx

        table: Any = compile_fx.select_decomp_table()  # type: ignore[attr-defined]
        assert torch.ops.aten.mse_loss.default in table

    def test_asserts(self) -> None:
        from torch._inductor import ir

        assert list(inspect.signature(ir.AssertScalar.codegen).parameters) == ["self", "wrapper"]
        assert list(inspect.signature(ir.AssertScalar.__init__).parameters)[:2] == ["self", "scalar"]
        assert list(inspect.signature(torch._check_with).parameters) == ["error_type", "cond", "message"]

    def test_custom_operators(self) -> None:
        from torch._library.custom_ops import OPDEFS

        @torch.library.custom_op("aotpack_canary::twice", mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        known = OPDEFS["aotpack_canary::twice"]
        assert known is twice
        assert all(hasattr(known, name) for name in ("_init_fn", "_backend_fns", "_backward_fn", "_qualname"))
        assert known._backend_fns[None](torch.ones(1)) == 2


def test_conditions_have_one_key() -> None:
    u, n = sympy.Symbol("u0", integer=True), sympy.Symbol("s0", integer=True)
    assert condition_key(u >= 0) == condition_key(sympy.Le(0, u, evaluate=False))
    assert condition_key(u <= n) == condition_key(n >= u)
    assert condition_key(u <= n) != condition_key(u < n)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda n: 2 / ToFloat(3) * IntTrueDiv(n, 4), "(static_cast<double>(n) / static_cast<double>(4L))"),
        (lambda n: OpaqueUnaryFn_sin(ToFloat(n)), "std::sin(static_cast<double>(static_cast<double>(n)))"),
        (lambda n: OpaqueUnaryFn_exp(ToFloat(n)), "std::exp("),
        (lambda n: PowByNatural(3, n), "static_cast<uint64_t>(3L), n)"),
        (lambda n: FloatPow(ToFloat(n), 1.5), "std::pow("),
        (lambda n: FloorDiv(n, 3), "c10::div_floor_integer("),
        (lambda n: Min(IntTrueDiv(7, n), IntTrueDiv(n, 5)), "std::min<double>("),
        (lambda n: Max(IntTrueDiv(7, n), 2), "std::max<double>("),
        (lambda n: Max(FloorDiv(n, 5), 2), "std::max(static_cast<int64_t>("),
    ],
    ids=["true_division", "sin", "exp", "power", "float_power", "floor_division", "min", "max", "max of integers"],
)
def test_sizes_are_printed(make: Any, expected: str) -> None:
    from torch.utils._sympy.printers import CppPrinter

    with sizes_in_cpp():
        text = CppPrinter().doprint(make(sympy.Symbol("n", integer=True, positive=True)))
    assert expected in text
    assert "math." not in text


def test_a_result_whose_sizes_are_differences_of_sizes(tmp_path: Path, cache_dir: Path) -> None:
    """The strides of such a result are compared: torch divides them, and fails on the range of the quotient."""

    class Pairs(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.nn.functional.avg_pool1d(x, 10)[..., 1:]
            pairs = y[:, :, None, :] > y[:, :, :, None]
            return pairs.expand(x.shape[0], -1, y.shape[2], y.shape[2])

    model, shapes = Pairs(), {"x": {0: Dim("b", 1, 8), 2: Dim("n", 40, 400)}}
    path = tmp_path / "pairs.aotpack"
    program = aot_export(model, (torch.randn(3, 1, 60),), dynamic_shapes=shapes)
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    archive = aotpack.load(path)
    for batch, length in ((1, 40), (3, 60), (8, 399)):
        x = torch.randn(batch, 1, length)
        assert torch.equal(archive(x), model(x))


def test_a_size_by_the_smaller_of_two_ratios(tmp_path: Path, cache_dir: Path) -> None:
    """As an image is scaled to fit: the ratio is a fraction."""

    def fitted(x: torch.Tensor) -> torch.Tensor:
        high, wide = x.shape
        scale = torch.sym_min(15 / high, 20 / wide)  # type: ignore[no-untyped-call]
        return x.new_ones(torch.sym_int(scale * high + 0.5), torch.sym_int(scale * wide + 0.5))

    shapes = {"x": {0: Dim("high", 2, 40), 1: Dim("wide", 2, 40)}}
    path = tmp_path / "fitted.aotpack"
    program = aot_export(fitted, (torch.randn(10, 12),), dynamic_shapes=shapes)
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    archive = aotpack.load(path)
    for sizes in ((10, 12), (40, 13), (7, 40), (2, 2)):
        x = torch.randn(sizes)
        assert torch.equal(torch.from_dlpack(archive(x)), fitted(x))
