"""Sizes to try a program at: those at which a condition is false, in the declared ranges, not larger than needed."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import sympy

from aotpack.archive.code import UndefinedError, evaluate
from aotpack.export.ir.program import Program
from aotpack.export.symbolic_shapes.expressions import size_of, write
from aotpack.spec import Check, Dim

Sizes = Mapping[str, int]

# How many combinations of sizes are looked at, and how many calls are made.
_LOOKED_AT = 4000
_TRIED = 3
# Calls whose dims multiply to more than this many times the example's are made only where none is smaller.
_LARGER = 16
_ALWAYS_SMALL = 4096


def admits(dim: Dim, size: int) -> bool:
    """Whether a dim may have this size."""
    return dim.min <= size and (dim.max is None or size <= dim.max) and size % dim.multiple_of == 0


def fits(program: Program, sizes: Sizes, *, without: sympy.Basic | None = None) -> bool:
    """Whether a call of these sizes is one that the program takes, `without` one of its checks."""
    left_out = None if without is None else write(without).text
    try:
        shapes = [size_of(element, sizes) for spec in program.signature.inputs for element in spec.shape]
        checks = [check for check in program.checks if check.text != left_out]
        return min(shapes, default=0) >= 0 and all(evaluate(check.code, sizes) for check in checks)
    except UndefinedError:
        return False


def violations(
    program: Program, condition: sympy.Basic, example: Sizes, *, preferred: Sequence[sympy.Basic] = ()
) -> list[dict[str, int]]:
    """A few calls that the program admits but for this condition: small ones first, from all over the ranges.

    Args:
        program: with the dims and checks that are known.
        condition: over the symbols of dims.
        example: the sizes of the example call.
        preferred: conditions that these calls satisfy, if there are such calls.
    """
    holds = predicate(condition)
    if holds is None:
        return []
    names = sorted(symbol.name for symbol in condition.free_symbols)
    dims = {dim.name: dim for dim in program.signature.dims}
    if not all(name in dims and name in example for name in names):
        return []
    found = []
    for combination in _combinations([_candidates(dims[name], example[name]) for name in names]):
        sizes = {**example, **dict(zip(names, combination, strict=True))}
        if holds(sizes) is False and fits(program, sizes, without=condition):
            found.append(sizes)
    others = [known for other in preferred if other != condition and (known := predicate(other)) is not None]
    best = [sizes for sizes in found if all(other(sizes) for other in others)]
    return _few(best or found, example)


def predicate(condition: sympy.Basic) -> Callable[[Sizes], bool | None] | None:
    """The condition as a function of sizes, None where it has no value; None if it cannot be computed in a call."""
    code = write(condition).code
    if code is None:
        return None
    check = Check("", code)

    def holds(sizes: Sizes) -> bool | None:
        try:
            return bool(evaluate(check.code, sizes))
        except UndefinedError:
            return None

    return holds


def _candidates(dim: Dim, example: int) -> list[int]:
    """Sizes of a dim that are worth a try: around its bounds and around the example's."""
    near = {example + step * dim.multiple_of for step in (-2, -1, 0, 1, 2)} | {2 * example, 4 * example + 1}
    low = dim.min if dim.min > -(1 << 62) else min(-3, example)
    near |= {low + step for step in range(4 * dim.multiple_of)}
    if dim.max is not None:
        near |= {dim.max - step for step in range(2 * dim.multiple_of)}
        near |= {dim.max // 2, dim.max // 3 * 2}
    return sorted(size for size in near if admits(dim, size))


def _combinations(pools: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    if math.prod(map(len, pools)) <= _LOOKED_AT:
        yield from itertools.product(*pools)
        return
    draw = random.Random(0)
    for _ in range(_LOOKED_AT):
        yield tuple(draw.choice(pool) for pool in pools)


def _few(points: Sequence[dict[str, int]], example: Sizes) -> list[dict[str, int]]:
    ordered = sorted(points, key=lambda sizes: (_cost(sizes), sorted(sizes.items())))
    limit = max(_cost(example) * _LARGER, _ALWAYS_SMALL)
    small = [sizes for sizes in ordered if _cost(sizes) <= limit] or ordered[:1]
    chosen = {position * (len(small) - 1) // (_TRIED - 1) for position in range(_TRIED)} if small else set()
    return [small[position] for position in sorted(chosen)]


def _cost(sizes: Sizes) -> int:
    return math.prod(max(size, 1) for size in sizes.values())
