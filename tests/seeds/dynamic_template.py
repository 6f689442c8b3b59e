"""The common template of operator programs: small functions of tensors all of whose dims are dynamic.

A family file (`dynamic_programs_*.py`) lists programs. `Bundle` makes one function of several, so that an archive holds
many: each program keeps inputs and dims of its own, and its results are compared with eager's by its name.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.export import Dim

from tests.support.building import in_double

Sizes = Mapping[str, int]

# What dims of a program are in turn. The example's are neither 0 nor 1, and no two of them are equal.
_EXAMPLE = (3, 5, 4, 7, 6, 2)
_LARGER = (17, 33, 9, 20, 11, 13)

_TOKEN = re.compile(r"(?:(\d+)\*)?([a-z]\w*)([+-]\d+)?")


def _evaluate(token: str, sizes: Sizes) -> int:
    """The size that a token of a shape stands for: `3`, `n`, `2*n`, `n+1` or `2*n-1`."""
    if token.isdigit():
        return int(token)
    match = _TOKEN.fullmatch(token)
    assert match is not None, token
    return int(match[1] or 1) * sizes[match[2]] + int(match[3] or 0)


@dataclass(frozen=True)
class Input:
    """A tensor argument: its dims in words, and what makes it of its sizes and of those of all dims."""

    dims: tuple[str, ...]
    make: Callable[[tuple[int, ...], Sizes], Tensor]

    def sample(self, sizes: Sizes) -> Tensor:
        return self.make(tuple(_evaluate(token, sizes) for token in self.dims), sizes)


def floats(dims: str, dtype: torch.dtype = torch.float32) -> Input:
    """Of the normal distribution."""
    return Input(tuple(dims.split()), lambda shape, _: torch.randn(shape).to(dtype))


def positive(dims: str, low: float = 0.1, high: float = 2.0) -> Input:
    """Evenly between two numbers."""
    return Input(tuple(dims.split()), lambda shape, _: torch.empty(shape).uniform_(low, high))


def ints(dims: str, high: int | str = 10, *, low: int = 0, dtype: torch.dtype = torch.int64) -> Input:
    """Integers in [low, high); `high` may be a dim, as it is for places in another tensor."""

    def make(shape: tuple[int, ...], sizes: Sizes) -> Tensor:
        limit = _evaluate(high, sizes) if isinstance(high, str) else high
        return torch.randint(low, max(limit, low + 1), shape, dtype=dtype)

    return Input(tuple(dims.split()), make)


def bools(dims: str) -> Input:
    """True and False, about as many of each."""
    return Input(tuple(dims.split()), lambda shape, _: torch.rand(shape) < 0.5)


def made(dims: str, make: Callable[[tuple[int, ...]], Tensor]) -> Input:
    """Made by a function of the sizes."""
    return Input(tuple(dims.split()), lambda shape, _: make(shape))


@dataclass(frozen=True)
class OperatorProgram:
    """A function of tensors.

    Attributes:
        name: unique among all programs.
        function: of the tensors of `inputs`; a module or a function.
        least: the smallest size that the program is defined for, by dim; 1 serves for those that are not named.
        tolerance: of the greatest magnitude expected, against eager in double precision.
        never_empty: dims that an archive may refuse to be 0 though eager takes that: torch's own decompositions fail.
        refused: a pattern of the message, where torch.export cannot capture the program for all sizes.
    """

    name: str
    function: Callable[..., Any]
    inputs: tuple[Input, ...]
    least: Mapping[str, int] = field(default_factory=dict)
    tolerance: float = 2e-5
    never_empty: tuple[str, ...] = ()
    refused: str | None = None

    def dims(self) -> list[str]:
        """The names of the dims in order of first use."""
        tokens = itertools.chain.from_iterable(value.dims for value in self.inputs)
        found = (_TOKEN.fullmatch(token) for token in tokens if not token.isdigit())
        return list(dict.fromkeys(match[2] for match in found if match is not None))

    def _bounded(self, values: Sequence[int]) -> dict[str, int]:
        return {dim: max(size, self.least.get(dim, 1)) for dim, size in zip(self.dims(), values, strict=False)}

    def example(self) -> dict[str, int]:
        return self._bounded(_EXAMPLE)

    def calls(self) -> Iterator[dict[str, int]]:
        """The sizes to call with: the example's, all 1, larger ones, and for each dim 0 where eager takes it."""
        yield self.example()
        yield self._bounded([1] * len(_EXAMPLE))
        yield self._bounded(_LARGER)
        for dim in self.dims():
            sizes = {**self.example(), dim: 0}
            if dim not in self.least and dim not in self.never_empty and self._takes(sizes):
                yield sizes

    def _takes(self, sizes: Sizes) -> bool:
        try:
            with torch.no_grad():
                self.function(*self.sample(sizes))
        except (RuntimeError, IndexError, ValueError, ZeroDivisionError):
            return False
        return True

    def sample(self, sizes: Sizes) -> tuple[Tensor, ...]:
        return tuple(value.sample(sizes) for value in self.inputs)

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        """In the form of torch.export, with dims named after the program."""
        known = {dim: Dim(f"{self.name}_{dim}", min=self.least.get(dim), max=None) for dim in self.dims()}
        return tuple(
            {axis: _dim(token, known) for axis, token in enumerate(value.dims) if not token.isdigit()}
            for value in self.inputs
        )

    def compare(self, got: Any, inputs: tuple[Tensor, ...]) -> None:
        """Asserts that an answer is eager's: structure, dtypes, sizes, values."""
        with torch.no_grad():
            eager = self.function(*inputs)
            exact = _double(self.function)(*in_double(inputs))
        answers, wanted, precise = (pytree.tree_leaves(value) for value in (got, eager, exact))
        shapes = f"{self.name} of {[tuple(value.shape) for value in inputs]}"
        assert len(answers) == len(wanted), f"{shapes}: {len(answers)} results instead of {len(wanted)}"
        for a, e, p in zip(answers, wanted, precise, strict=True):
            if not isinstance(e, Tensor):
                assert a == e, f"{shapes}: {a!r} instead of {e!r}"
                continue
            assert a.dtype == e.dtype, f"{shapes}: {a.dtype} instead of {e.dtype}"
            assert a.shape == e.shape, f"{shapes}: {tuple(a.shape)} instead of {tuple(e.shape)}"
            if not e.is_floating_point():
                assert torch.equal(a, e), f"{shapes}: {a} instead of {e}"
                continue
            torch.testing.assert_close(a.isnan(), p.isnan(), msg=f"{shapes}: NaN at other places")
            p = p.double()
            finite = p[p.isfinite()].abs()
            scale = finite.max().item() if finite.numel() else 1.0
            torch.testing.assert_close(
                a.double(),
                p,
                rtol=0.0,
                atol=self.tolerance * max(scale, 1e-30),
                equal_nan=True,
                msg=lambda text: f"{shapes}: {text}",
            )


def _dim(token: str, known: Mapping[str, Any]) -> Any:
    match = _TOKEN.fullmatch(token)
    assert match is not None, token
    dim = known[match[2]]
    if match[1]:
        dim = int(match[1]) * dim
    return dim + int(match[3]) if match[3] else dim


def _double(function: Callable[..., Any]) -> Callable[..., Any]:
    return copy.deepcopy(function).double() if isinstance(function, nn.Module) else function


def program(
    name: str,
    function: Callable[..., Any],
    *inputs: Input | str,
    least: Mapping[str, int] | None = None,
    tolerance: float = 2e-5,
    never_empty: str = "",
    refused: str | None = None,
) -> OperatorProgram:
    """A program; inputs given as mere dims are floats."""
    given = tuple(floats(value) if isinstance(value, str) else value for value in inputs)
    return OperatorProgram(name, function, given, least or {}, tolerance, tuple(never_empty.split()), refused)


class Bundle(nn.Module):
    """Several programs as one model: it takes a list of their arguments and returns their results by name."""

    def __init__(self, programs: Sequence[OperatorProgram]) -> None:
        super().__init__()
        self.programs = tuple(programs)
        modules = {p.name: p.function for p in programs if isinstance(p.function, nn.Module)}
        self.parts = nn.ModuleDict(modules)
        self.eval()

    def forward(self, calls: list[tuple[Tensor, ...]]) -> dict[str, Any]:
        # Flat: what a function of torch returns may be of a class that only torch has.
        return {p.name: pytree.tree_leaves(p.function(*inputs)) for p, inputs in zip(self.programs, calls, strict=True)}

    def example(self) -> list[tuple[Tensor, ...]]:
        return [p.sample(p.example()) for p in self.programs]

    def dynamic_shapes(self) -> dict[str, Any]:
        return {"calls": [p.dynamic_shapes() for p in self.programs]}

    def rounds(self) -> Iterator[list[tuple[Tensor, ...]]]:
        """Arguments for calls until every program was called with all of its sizes; what runs out begins anew."""
        schedules = [list(p.calls()) for p in self.programs]
        for i in range(max(len(sizes) for sizes in schedules)):
            yield [p.sample(sizes[i % len(sizes)]) for p, sizes in zip(self.programs, schedules, strict=True)]


def bundles(programs: Sequence[OperatorProgram], size: int = 24) -> list[Bundle]:
    """The programs in bundles of about equal sizes."""
    count = -(-len(programs) // size)
    return [Bundle(programs[i::count]) for i in range(count)]
