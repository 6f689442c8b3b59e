"""Sizes for generated inputs: values of dims that an entry accepts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from aotpack.archive import Entry, Guard, Variant
from aotpack.archive.code import UndefinedError, evaluate
from aotpack.errors import InputError
from aotpack.spec import Dim, DimRef, ShapeElement

# The number of values to try for each dim.
_TRIES = 64


def resolve_dims(entry: Entry, sizes: Mapping[str, int]) -> dict[str, int]:
    """A value for each dim: from `sizes`, otherwise the least that a variant accepts, but at least 1 if allowed.

    If no variant matches, the bounds of the dims are used, and the call reports the error.

    Raises:
        InputError: `sizes` contains an unknown dim.
    """
    known = {dim.name: dim for dim in entry.dims}
    for name in sizes:
        if name not in known:
            has = f"the dims are {', '.join(map(str, entry.dims))}" if entry.dims else "all sizes are static"
            raise InputError(f"the entry has no dim {name!r}", hint=has)
    # Those for inputs that are one tensor last: other calls pass a tensor for each input.
    for variant in sorted(entry.variants, key=lambda variant: bool(variant.same)):
        candidates = [
            [sizes[name]] * _TRIES
            if name in sizes
            else _candidates([dim, *(guard for guard in variant.guards if guard.dim == name)])
            for name, dim in known.items()
        ]
        # All dims grow together. A condition that holds for no small sizes is not worth a search.
        for combination in zip(*candidates, strict=False) if candidates else [()]:
            values = dict(zip(known, combination, strict=True))
            if fits(variant, values) and _possible(entry, values):
                return values
    return {name: sizes.get(name, max(1, dim.min)) for name, dim in known.items()}


def fits(variant: Variant, dims: Mapping[str, int]) -> bool:
    """Whether all guards and checks of the variant hold for these values of the dims."""
    try:
        return all(_admits(guard, dims[guard.dim]) for guard in variant.guards) and all(
            evaluate(check.code, dims) for check in variant.checks
        )
    except UndefinedError:
        return False


def size_of(size: ShapeElement, dims: Mapping[str, int]) -> int:
    """The size in a call with these values of the dims.

    Raises:
        InputError: it is undefined or negative.
    """
    value = number_of(size, dims, "the size")
    if value < 0:
        raise InputError(f"the size {size} is {value} for {_given(dims)}")
    return value


def number_of(formula: ShapeElement, dims: Mapping[str, int], what: str = "the scalar") -> int:
    """The value of a formula, which may be negative, in a call with these values of the dims.

    Messages refer to it as `what`.

    Raises:
        InputError: it is undefined.
    """
    if isinstance(formula, int):
        return formula
    if isinstance(formula, DimRef):
        return formula.mul * dims[formula.dim] + formula.add
    assert formula.code is not None  # inputs have no data-dependent sizes
    try:
        return int(evaluate(formula.code, dims))
    except UndefinedError as error:
        raise InputError(f"{what} {formula} is undefined for {_given(dims)}: {error}") from None


def _given(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in dims.items())


def _admits(bounds: Dim | Guard, value: int) -> bool:
    return value >= bounds.min and (bounds.max is None or value <= bounds.max) and value % bounds.multiple_of == 0


def _candidates(bounds: Sequence[Dim | Guard]) -> list[int]:
    """The least values within all bounds, from 1 on if allowed, because empty tensors show nothing.

    If there are few, the last one is repeated.
    """
    low = max(bound.min for bound in bounds)
    step = math.lcm(*(bound.multiple_of for bound in bounds))
    first = -(-max(low, 1) // step) * step
    values = [value for value in range(first, first + _TRIES * step, step) if _all_admit(bounds, value)]
    values = values or [value for value in (-(-low // step) * step,) if _all_admit(bounds, value)]
    return values + values[-1:] * (_TRIES - len(values))


def _all_admit(bounds: Sequence[Dim | Guard], value: int) -> bool:
    return all(_admits(bound, value) for bound in bounds)


def _possible(entry: Entry, dims: Mapping[str, int]) -> bool:
    """Whether every input has sizes."""
    try:
        for value in entry.inputs:
            for size in value.shape:
                size_of(size, dims)
    except InputError:
        return False
    return True
