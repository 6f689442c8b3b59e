"""Custom operators with C++ kernels of the user."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import aotpack
from aotpack.errors import ExecutionError, OutOfMemoryError
from aotpack.export import custom_kernel
from aotpack.export.custom_ops.kernels import custom_kernels_restored
from tests.export.conftest import Build

SOURCE = Path(__file__).with_name("custom_kernels") / "kernels.cpp"
NAMESPACE = "aotpack_kernels"
OPS = getattr(torch.ops, NAMESPACE)
_library = torch.library.Library(NAMESPACE, "DEF")
_registered: list[tuple[str, str]] = []


def define(schema: str, eager: Any, fake: Any, function: str | None = None, tags: Sequence[torch.Tag] = ()) -> None:
    name = schema.partition("(")[0]
    _library.define(schema, tags=tags)
    _library.impl(name, eager, "CPU")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    _registered.append((f"{NAMESPACE}::{name}", f"kernels::{function or name}"))


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    with custom_kernels_restored():
        for name, function in _registered:
            custom_kernel(name, sources=SOURCE, function=function)
        yield


# ---- what arrives in a kernel ---------------------------------------------------------------------------------------


def numbers(*values: Any) -> Tensor:
    """What the kernels make of their arguments."""
    return torch.tensor([float(n) for value in values for n in flat(value)], dtype=torch.float64)


def flat(value: Any, *, optional: bool = False) -> Iterator[float]:
    if isinstance(value, Optional):
        yield value.value is not None
        if value.value is not None:
            yield from flat(value.value)
    elif isinstance(value, Tensor):
        yield from (value.dim(), *value.shape, *value.double().flatten().tolist())
    elif isinstance(value, str):
        yield from (len(value.encode()), *value.encode())
    elif isinstance(value, Number):
        yield from ([int, float, bool].index(type(value.value)), value.value)
    elif isinstance(value, Sequence):
        yield len(value)
        for item in value:
            yield from flat(item)
    else:
        yield value


class Optional:
    def __init__(self, value: Any) -> None:
        self.value = value


class Number:
    def __init__(self, value: Any) -> None:
        self.value = value


def unknown_count(x: Any, *_: Any, **__: Any) -> Tensor:
    tensor = x if isinstance(x, Tensor) else x[0]
    return tensor.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.float64)


define(
    "tensors(Tensor x, Tensor? y, Tensor[] list, Tensor?[] optionals) -> Tensor",
    lambda x, y, list, optionals: numbers(x, Optional(y), list, [Optional(t) for t in optionals]),
    unknown_count,
)
define(
    "scalars(Tensor x, SymInt i, int? oi, float f, float? of, bool b, bool? ob, str s, str? os, Scalar n, *, "
    "ScalarType dtype, ScalarType? od=None) -> Tensor",
    lambda x, i, oi, f, of, b, ob, s, os, n, dtype, od=None: numbers(
        *(x, i, Optional(oi), f, Optional(of), b, Optional(ob), s, Optional(os), Number(n)),
        *({torch.int64: 4, torch.float32: 6}[dtype], od is not None, -1 if od is None else {torch.bfloat16: 15}[od]),
    ),
    unknown_count,
)
define(
    "lists(Tensor x, SymInt[] i, SymInt[]? oi, float[] f, float[]? of, bool[] b, str[] s) -> Tensor",
    lambda x, i, oi, f, of, b, s: numbers(x, i, Optional(oi), f, Optional(of), b, s),
    unknown_count,
)
define(
    "both(Tensor x) -> (Tensor, Tensor)",
    lambda x: (2 * x, torch.tensor(x.numel())),
    lambda x: (x.new_empty(x.shape), x.new_empty((), dtype=torch.int64)),
)
define(
    "rows(Tensor x) -> Tensor[]",
    lambda x: [row.clone() for row in x],
    lambda x: [x.new_empty(x.shape[1]) for _ in range(x.shape[0])],
)


def increase(x: Tensor, y: Tensor | None, more: list[Tensor], by: float) -> None:
    for tensor in [x, *([] if y is None else [y]), *more]:
        tensor += by


define(
    "increase(Tensor(a!) x, Tensor(b!)? y, Tensor(c!)[] more, float by) -> ()",
    increase,
    lambda x, y, more, by: None,
)
define("mm(Tensor x) -> Tensor", lambda x: numbers(x.shape[0] + 1), lambda x: x.new_empty(1, dtype=torch.float64))
define(
    "parallel(Tensor x, SymInt fail_at) -> Tensor",
    lambda x, fail_at: x + torch.arange(x.numel()).view(x.shape),
    lambda x, fail_at: x.new_empty(x.shape),
)
define(
    "draw(Tensor x) -> Tensor",
    lambda x: torch.zeros(x.shape, dtype=torch.int64),
    lambda x: x.new_empty(x.shape, dtype=torch.int64),
    tags=[torch.Tag.nondeterministic_seeded],
)
define("wrong(Tensor x, SymInt how) -> Tensor", lambda x, how: torch.ones(x.shape), lambda x, how: x.new_empty(x.shape))
define(
    "last_dim_first(Tensor x) -> Tensor",
    lambda x: (x + 1).contiguous(memory_format=torch.channels_last),
    lambda x: torch.empty_like(x, memory_format=torch.channels_last),
)
define("cube(Tensor x) -> Tensor", lambda x: x**3, lambda x: x.new_empty(x.shape))
define(
    "cube_backward(Tensor gradient, Tensor x) -> Tensor",
    lambda gradient, x: 3 * gradient * x * x,
    lambda gradient, x: x.new_empty(x.shape),
)
torch.library.register_autograd(
    f"{NAMESPACE}::cube",
    lambda ctx, gradient: OPS.cube_backward(gradient, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    lib=_library,
)


class Arguments(torch.nn.Module):
    """Every type of argument, with all that differs in how it is passed."""

    def forward(self, x: Tensor, y: Tensor, n: Tensor) -> list[Tensor]:
        i = n.item()
        size = x.shape[0]
        return [
            OPS.tensors(x, None, [], [None]),
            OPS.tensors(x.t(), y > 0, [y, x[:, 1:]], [None, y.double(), y.bfloat16()]),
            OPS.tensors(x.flip(0), y.half(), [x.expand(2, *x.shape)], []),
            OPS.scalars(x, 3, None, 0.5, None, True, None, "", None, 7, dtype=torch.int64),
            OPS.scalars(
                *(x, size, -1, math.pi, -math.inf, False, True, 'say "\\n"\n?', "größe", 2.5),
                dtype=torch.float32,
                od=torch.bfloat16,
            ),
            OPS.scalars(x, i, 0, 1e300, 0.0, True, False, "\x011", "", True, dtype=torch.int64),
            OPS.lists(x, [], None, [], None, [], []),
            OPS.lists(x, [1, size, i], [], [1.5, math.nan][:1], [], [True, False, True], ["a", '"', ""]),
            OPS.lists(x, [i], [size, 2, size * 2], [0.25], [1.0, 2.0], [False], ["x y"]),
        ]


def test_arguments_arrive_as_they_are(build: Build) -> None:
    model = Arguments()
    rows = aotpack.Dim("rows", 0, 100)
    archive = build(
        model,
        (torch.randn(3, 4), torch.randn(5), torch.tensor(3)),
        dynamic_shapes={"x": {0: rows}, "y": None, "n": None},
    )
    for count, number in ((3, 5), (1, 0), (7, -2), (0, 1 << 40)):
        args = (torch.randn(count, 4), torch.randn(5), torch.tensor(number))
        for got, wanted in zip(archive(*args), model(*args), strict=True):
            assert torch.equal(got, wanted)


class Results(torch.nn.Module):
    """Several results, lists of them, written arguments, a name that torch has too, strides other than the kernel's."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: Tensor, image: Tensor, z: Tensor) -> dict[str, Any]:
        doubled, count = OPS.both(x)
        rows = OPS.rows(x[:3])
        own = x * 1
        OPS.increase(own, None, [], 1.5)
        OPS.increase(z, self.seen, [rows[0], own], 2.0)
        return {
            "both": (doubled + 1, count),
            "rows": rows[::-1],
            "own": own,
            "seen": self.seen.clone(),
            "mm": OPS.mm(x) + torch.mm(x, x.t()).sum(),
            "image": torch.nn.functional.avg_pool2d(OPS.last_dim_first(image), 2) * 3,
            "raw": OPS.last_dim_first(image),
            "parallel": OPS.parallel(x, -1) + 1,
        }


def test_results_are_those_of_eager(build: Build) -> None:
    model = Results()

    def inputs(rows: int) -> tuple[Tensor, ...]:
        return torch.randn(rows, 6), torch.randn(2, 3, 4, 4), torch.randn(4)

    rows = aotpack.Dim("rows", 3, 3000)
    archive = build(model, inputs(5), dynamic_shapes={"x": {0: rows}, "image": None, "z": None})
    eager = Results()
    for count in (5, 3, 2000):
        args = inputs(count)
        copies = tuple(arg.clone() for arg in args)
        expected, got = eager(*args), archive(*copies)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-3)
        assert torch.equal(copies[2], args[2])
    assert got["raw"].stride() == expected["raw"].stride()


def test_random_numbers_follow_the_seed(build: Build) -> None:
    archive = build(lambda x: (OPS.draw(x), OPS.draw(x)), (torch.randn(2),))
    context, other = archive.context(), archive.context()
    context.seed(3), other.seed(3)
    first, second = context(torch.randn(2)), other(torch.randn(2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], context(torch.randn(2))[0])


# ---- failures -------------------------------------------------------------------------------------------------------

WRONG = {
    1: "the kernel returned the sizes [7], its fake implementation [2, 3]",
    2: "the kernel returned float64, its fake implementation float32",
    3: "a result is an argument, or another result",
    4: "the kernel writes to an argument that its schema does not declare as written",
    5: "the kernel takes a tensor of float32 for one of float64",
    6: "the kernel's own",
    7: "the kernel threw an object that is not a std::exception",
    8: "empty was called inside parallel_for",
    10: "there is no dim 2 in a tensor of rank 2",
}


def test_what_a_kernel_throws_is_the_error_of_the_call(build: Build) -> None:
    def function(x: Tensor, how: int) -> Tensor:
        return OPS.wrong(x, how) + OPS.parallel(x, how - 100)

    archive = build(function, (torch.randn(2, 3), 0), dynamic_shapes={"x": None, "how": aotpack.Dim("how", 0, 1000)})
    x = torch.randn(2, 3)
    for how, message in WRONG.items():
        with pytest.raises(ExecutionError) as caught:
            archive(x, how)
        assert f"{NAMESPACE}::wrong: {message}" in str(caught.value)
    with pytest.raises(OutOfMemoryError):
        archive(x, 9)
    with pytest.raises(ExecutionError, match=f"{NAMESPACE}::parallel: element 4 is not wanted"):
        archive(x, 104)
    assert torch.equal(archive(x, 0), 1 + x + torch.arange(6).view(2, 3))


# ---- backward -------------------------------------------------------------------------------------------------------


def test_a_backward_with_a_kernel(build: Build) -> None:
    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4))

        def forward(self, x: Tensor) -> Tensor:
            return OPS.cube(x * self.weight).sum()

    model = Loss()
    archive = build(model, (torch.randn(5, 4, requires_grad=True),), mode="joint")
    x = torch.randn(5, 4, requires_grad=True)
    loss = model(x)
    loss.backward()
    result = archive(x.detach())
    torch.testing.assert_close(result["outputs"], loss.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(result["gradients"]["weight"], model.weight.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(result["input_gradients"]["x"], x.grad, rtol=1e-4, atol=1e-4)
