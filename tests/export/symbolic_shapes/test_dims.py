"""Dims of captured programs: their names, ranges, relations and checks, and what is said of them."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

from aotpack import Dim
from aotpack.archive.code import evaluate
from aotpack.errors import CaptureError
from aotpack.export import aot_export, load_exported
from aotpack.export.ir.program import Program
from aotpack.export.probing.lowering_guards import lowering_checks
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.symbolic_shapes.expressions import size_of
from aotpack.spec import Expr
from tests.support.acceptance import accepts, watched
from tests.support.building import Build, assert_close, in_double

randn = torch.randn
N = Dim("n")


def capture(function: Any, *args: Any, **shapes: Any) -> Program:
    return aot_export(function, args, dynamic_shapes=shapes or "auto")


def described(program: Program) -> str:
    """Dims, input shapes, output shapes and checks on a line."""
    tensors = [*program.signature.inputs, *program.signature.outputs]
    shapes = " ".join("x".join(map(str, spec.shape)) for spec in tensors)
    return f"{', '.join(map(str, program.signature.dims))} | {shapes} | {'; '.join(c.text for c in program.checks)}"


# ---- names and relations --------------------------------------------------------------------------------------------


def test_equal_dims_are_one() -> None:
    program = capture(lambda x, y: x + y, randn(4, 3), randn(4, 3), x={0: "n"}, y={0: "n"})
    assert described(program) == "n >= 0 | nx3 nx3 nx3 | "
    assert not program.notes


def test_dims_that_the_model_makes_equal() -> None:
    program = capture(lambda x, y: x + y, randn(4, 3), randn(4, 3), x={0: N}, y={0: Dim("m", 1, 9)})
    assert described(program) == "n in [1, 9] | nx3 nx3 nx3 | "
    assert str(program.notes[0]) == "m: is always n (input 'y', axis 0)"


def test_a_relation_that_the_model_does_not_need() -> None:
    program = capture(lambda x, y: (x * 1, y * 1), randn(4), randn(9), x={0: N}, y={0: 2 * N + 1})
    assert described(program) == "n >= 0 | n 2*n+1 n 2*n+1 | "


def test_a_dim_that_is_given_by_a_relation_alone() -> None:
    program = capture(lambda x: x * 2, randn(9, 2), x={0: 2 * Dim("n", 1, 5) + 1})
    assert described(program) == "n in [1, 5] | 2*n+1x2 2*n+1x2 | "


def test_a_relation_that_the_model_needs() -> None:
    program = capture(lambda x, y: x.repeat(2) + y, randn(4), randn(8))
    assert described(program) == "x_0 >= 0 | x_0 2*x_0 2*x_0 | "


def test_a_size_that_is_computed_from_others() -> None:
    program = capture(lambda x, y: x.view(-1) + y, randn(4, 3), randn(12), x={0: N, 1: "m"}, y={0: "t"})
    assert described(program) == "n >= 0, m >= 0 | nxm m*n m*n | "
    assert [str(note) for note in program.notes] == ["t: is always m*n (input 'y', axis 0)"]
    element = program.signature.inputs[1].shape[0]
    assert isinstance(element, Expr) and element.code is not None
    assert evaluate(element.code, {"n": 7, "m": 3}) == 21


def test_a_dim_with_a_range_that_is_computed_from_others() -> None:
    program = capture(lambda x, y: x.view(-1) + y, randn(4, 3), randn(12), x={0: N, 1: "m"}, y={0: Dim("t", 0, 50)})
    for rows, columns, total in [(4, 3, 12), (5, 10, 50), (4, 3, 13), (6, 10, 60)]:
        sizes = {"n": rows, "m": columns, "t": total}
        shape = [size_of(element, sizes) for element in program.signature.inputs[1].shape]
        assert (accepts(program, sizes) and shape == [total]) == (rows * columns == total <= 50)


def test_multiples() -> None:
    program = capture(lambda x: x.view(-1, 4), randn(16), x={0: Dim("n", multiple_of=8)})
    assert described(program) == "n >= 0 by 8 | n n//4x4 | "
    program = capture(lambda x: x.view(-1, 8), randn(16, 3), x={0: N})
    assert described(program) == "n >= 0 by 8 | nx3 3*n//8x8 | "
    assert str(program.notes[0]).startswith("n: must be a multiple of 8\n  at ") and "x.view(-1, 8)" in str(
        program.notes[0]
    )


def test_conditions_on_several_dims() -> None:
    program = capture(lambda x: x.view(-1, 8), randn(16, 3))
    assert described(program) == "x_0 >= 0, x_1 >= 0 | x_0xx_1 x_0*x_1//8x8 | x_0*x_1 % 8 == 0"
    assert accepts(program, {"x_0": 4, "x_1": 6}) and not accepts(program, {"x_0": 4, "x_1": 3})


def test_ints_may_be_negative() -> None:
    program = capture(lambda x, k: x * k if k < 3 else x, randn(4), -2, x={0: N}, k=Dim("k", -10))
    assert "k in [-10, 2]" in described(program)


def test_sizes_out_of_the_data_have_no_code() -> None:
    program = capture(lambda x: x[x > 0], randn(8), x={0: N})
    (element,) = program.signature.outputs[0].shape
    assert element == Expr("u0", None)


# ---- constants ------------------------------------------------------------------------------------------------------


def test_a_named_dim_that_the_model_fixes() -> None:
    with pytest.raises(CaptureError, match=r"fixes the dim 'n' \(input 'x', axis 0\) to 4\n  at .*torch.ones\(4\)"):
        capture(lambda x: x + torch.ones(4), randn(4), x={0: N})
    with pytest.raises(CaptureError, match="fixes the dim 'n'"):
        capture(lambda x: sum(x[i] for i in range(x.shape[0])), randn(4), x={0: N})


def test_a_dim_with_one_size_may_be_fixed() -> None:
    program = capture(lambda x: x + torch.ones(4), randn(4), x={0: Dim("n", 4, 4)})
    assert program.signature.inputs[0].shape == (4,)


def test_auto_says_what_is_constant_and_why() -> None:
    program = capture(lambda x: x @ torch.ones(4, 5), randn(3, 4))
    assert described(program) == "x_0 >= 0 | x_0x4 x_0x5 | "
    assert [note.subject for note in program.notes] == ["input 'x', axis 1"]
    assert "is always 4\n  at " in program.notes[0].text and "torch.ones(4, 5)" in program.notes[0].text


def test_a_range_that_the_user_gave() -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 3 else x

    with pytest.raises(CaptureError, match=r"declared as n in \[1, 9\].* at least 4\n  at .*if x.shape\[0\] > 3"):
        capture(long, randn(5), x={0: Dim("n", 1, 9)})
    assert described(capture(long, randn(5), x={0: N})).startswith("n >= 4 |")


def test_sizes_of_one_in_the_example() -> None:
    program = capture(lambda x, y: x + y, randn(4, 3), randn(4, 1))
    assert described(program) == "x_0 >= 0, x_1 >= 0 | x_0xx_1 x_0x1 x_0xx_1 | "
    assert [str(note) for note in program.notes] == [
        "input 'y', axis 1: is always 1, as in the example: the model requires it"
    ]
    program = capture(lambda x, y: (x * 2, y * 3), randn(4, 3), randn(4, 1))
    assert [accepts(program, {"x_0": 2, "x_1": 3, "y_0": 5, "y_1": size}) for size in (0, 1, 7)] == [True] * 3


# ---- Python code that computes with sizes ---------------------------------------------------------------------------


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: int(x.shape[0] * 0.5)] * self.weight


def test_ints_of_floats_are_followed() -> None:
    program = capture(Half(), randn(4, 3), x={0: N})
    assert [note.text for note in program.notes if note.subject == "capture"] == [
        "traced by Dynamo (strict=True), because Python code of the model computes with sizes"
    ]
    assert [constant.target for constant in program.graph.find_nodes(op="get_attr")] == ["weight"]
    (rows, _) = program.signature.outputs[0].shape
    assert isinstance(rows, Expr) and rows.code is not None
    assert [evaluate(rows.code, {"n": size}) for size in (0, 1, 5, 8)] == [0, 0, 2, 4]


def test_functions_of_math() -> None:
    program = capture(lambda x: x * math.sqrt(x.shape[0]), randn(4, 3), x={0: N})
    x = randn(9, 3)
    (actual,) = program.runnable()(x)
    assert_close(actual, x * 3)


# ---- in calls -------------------------------------------------------------------------------------------------------


def test_an_archive_refuses_what_was_not_captured(build: Build) -> None:
    archive = build(
        lambda x, y, z: (x.view(-1, 8).sum(0), x.view(-1) + y, z * 2),
        (randn(4, 6), randn(24), randn(9)),
        dynamic_shapes={"x": {0: N, 1: "m"}, "y": {0: "t"}, "z": {0: 2 * N + 1}},
    )
    for rows, columns in [(8, 3), (2, 4), (0, 5), (1, 8)]:
        x, y, z = randn(rows, columns), randn(rows * columns), randn(2 * rows + 1)
        double = in_double((x, y, z))
        expected = (double[0].view(-1, 8).sum(0), double[0].view(-1) + double[1], double[2] * 2)
        actual = archive(x, y, z)
        assert_close([torch.as_tensor(a) for a in actual], [e.float() for e in expected])
    with pytest.raises(ValueError, match=r"m\*n % 8 == 0"):
        archive(randn(3, 3), randn(9), randn(7))
    with pytest.raises(ValueError, match=r"'y'.*m\*n = 24"):
        archive(randn(8, 3), randn(23), randn(17))
    with pytest.raises(ValueError, match="'z'"):
        archive(randn(8, 3), randn(24), randn(16))


# ---- programs from files --------------------------------------------------------------------------------------------


class Rows(nn.Module):
    def forward(self, x: torch.Tensor, y: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return x.view(-1, 8) + 1 if x.shape[0] > 3 else x, x.shape[0] * y[0]


def test_guards_of_a_file_are_checked(tmp_path: Path) -> None:
    auto = torch.export.Dim.AUTO
    shapes = {"x": {0: auto}, "y": [{0: auto}, None]}
    exported = torch.export.export(Rows(), (randn(16), [randn(17), randn(2)]), dynamic_shapes=shapes)
    torch.export.save(exported, tmp_path / "rows.pt2")
    program = load_exported(tmp_path / "rows.pt2")
    guarded = exported.module()
    for size in range(2, 40):
        x, y = randn(size), [randn(5), randn(2)]
        try:
            expected = guarded(x, y)
        except (AssertionError, RuntimeError):
            assert not accepts(program, dict.fromkeys((dim.name for dim in program.signature.dims), 5) | {"x_0": size})
            continue
        assert accepts(program, {dim.name: 5 for dim in program.signature.dims} | {"x_0": size})
        assert_close(list(program.runnable()(x, *y)), list(expected))


# ---- what comes after the capture -----------------------------------------------------------------------------------


def test_what_is_assumed_later_is_checked() -> None:
    program = capture(lambda x: x * 2, randn(24, 3))
    env = shape_env.graph_environment(program.graph)
    assert env is not None and lowering_checks(program, "test") == ()
    rows, columns = program.graph.find_nodes(op="placeholder")[0].meta["val"].shape
    with shape_env.lines_of_the_model():
        assert rows * columns % 4 == 0 and rows > 20 and columns != 1
    assert [check.text for check in lowering_checks(program, "test")] == ["x_0*x_1 % 4 == 0", "x_0 >= 21"]
    assert lowering_checks(program, "test") == ()


# ---- random programs ------------------------------------------------------------------------------------------------


def _viewed(x: torch.Tensor, k: int) -> torch.Tensor:
    return x.reshape(-1, k).sum(1)


STEPS: dict[str, Any] = {
    "view": lambda x, k: x.reshape(-1, k).sum(1, keepdim=True).expand(-1, 2).contiguous(),
    "long": lambda x, k: x * 2 if x.shape[0] > k else x + 1,
    "short": lambda x, k: x[:k] if x.shape[0] >= k else x,
    "not": lambda x, k: x + 1 if x.shape[0] == k else x,
    "wide": lambda x, k: x.t().contiguous() if x.shape[1] < x.shape[0] + k else x,
    "twice": lambda x, k: torch.cat([x, x[: x.shape[0] // k]]),
    "even": lambda x, k: x * 3 if x.shape[0] % k == 0 else x,
    "product": lambda x, k: x - 1 if x.shape[0] * x.shape[1] > 8 * k else x,
    "split": lambda x, k: x.unflatten(1, (k, -1)).sum(2) if x.shape[1] % k == 0 else x,
}


def run_steps(steps: list[tuple[str, int]], x: torch.Tensor) -> torch.Tensor:
    for name, k in steps:
        x = STEPS[name](x, k)
    return x


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@example([("split", 4), ("split", 2)], 2, 2, random.Random(0))
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(2, 4)), min_size=1, max_size=3),
    st.integers(2, 12),
    st.integers(2, 12),
    st.randoms(use_true_random=False),
)
def test_a_program_takes_what_its_capture_takes(
    steps: list[tuple[str, int]], rows: int, columns: int, sizes_of: random.Random
) -> None:
    try:
        run_steps(steps, randn(rows, columns))
    except RuntimeError:
        return
    try:
        with watched() as assumed:
            program = capture(lambda x: run_steps(steps, x), randn(rows, columns), x={0: "a", 1: "b"})
    except CaptureError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        # A branch may leave one size.
        assert "fixes the dim" in refused, refused
        return
    names = [dim.name for dim in program.signature.dims]
    points = [{name: sizes_of.randint(0, 12) for name in names} for _ in range(15)]
    for _ in range(30):
        sizes = {name: sizes_of.randint(2, 30) for name in names}
        if accepts(program, sizes) != assumed.holds(sizes):
            # A branch that skips nothing (`split` by 4, then by 2, is `split` by 2) is no condition.
            assert accepts(program, sizes), (sizes, described(program), assumed)
            points.append(sizes)
    for point in points:
        if not accepts(program, point):
            continue
        x = randn([size_of(element, point) for element in program.signature.inputs[0].shape])
        (actual,) = program.runnable()(x)
        assert_close(actual, run_steps(steps, x))


def test_the_watch_sees_conditions() -> None:
    with watched() as assumed:
        capture(lambda x: x + 1 if x.shape[0] > 3 else x, randn(5), x={0: N})
    assert any(assumption.expr == (sympy.Symbol("n", integer=True) > 3) for assumption in assumed.assumptions)
    assert assumed.holds({"n": 4}) and not assumed.holds({"n": 3})
