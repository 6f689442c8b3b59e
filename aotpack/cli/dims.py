"""`aotpack build --dim x.0=batch:1..64`: dynamic shapes and scalar inputs on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from aotpack.spec import DYNAMIC, UNSTATED, DerivedDim, Dim

AUTO = "auto"

_FORM = re.compile(
    r"(?P<place>[^=\s]+)="
    r"(?:(?P<mul>\d+)\*)?(?P<name>[A-Za-z_]\w*)(?P<add>[+-]\d+)?"
    r"(?::(?P<min>-?\d+)?\.\.(?P<max>-?\d+)?)?"
    r"(?:%(?P<multiple>\d+))?"
)
_HELP = (
    "use INPUT.AXIS=NAME[:[MIN]..[MAX]][%MULTIPLE] for a size, such as x.0=batch:1..64, or a formula of a dim, such "
    "as y.0=2*batch+1; INPUT=NAME[:[MIN]..[MAX]] or INPUT=dynamic for a scalar; `auto` for all sizes"
)


@dataclass(frozen=True)
class DimOption:
    """The size (or scalar) at `place`, a dotted path, is `mul` * the dim `name` + `add`.

    Attributes:
        min, max, multiple_of: of the dim; None if not given.
    """

    place: str
    name: str
    mul: int = 1
    add: int = 0
    min: int | None = None
    max: int | None = None
    multiple_of: int | None = None

    @property
    def has_range(self) -> bool:
        """Whether the option restricts the sizes of the dim."""
        return (self.min, self.max, self.multiple_of) != (None, None, None)


def parse_dims(options: Sequence[str] | None) -> list[DimOption]:
    """Parses the `--dim` options; `auto` becomes an option with an empty place.

    Raises:
        typer.BadParameter: an option is malformed or contradicts another option.
    """
    result: list[DimOption] = []
    ranges: dict[str, DimOption] = {}
    for text in options or []:
        option = _parse(text)
        if any(option.place == other.place for other in result):
            raise _wrong(f"{option.place or AUTO!r} is given twice")
        known = ranges.get(option.name)
        if option.has_range:
            if known is not None and (known.min, known.max, known.multiple_of) != (
                option.min,
                option.max,
                option.multiple_of,
            ):
                raise _wrong(f"the dim {option.name!r} has two different ranges")
            ranges[option.name] = option
        result.append(option)
    if len(result) > 1 and any(not option.place for option in result):
        raise _wrong(f"`{AUTO}` applies to all sizes and cannot be combined with other options")
    return result


def _parse(text: str) -> DimOption:
    if text == AUTO:
        return DimOption("", AUTO)
    match = _FORM.fullmatch(text)
    if match is None:
        raise _wrong(f"{text!r} is invalid: {_HELP}")
    numbers = {key: None if match[key] is None else int(match[key]) for key in ("mul", "add", "min", "max", "multiple")}
    low, high, multiple = numbers["min"], numbers["max"], numbers["multiple"]
    option = DimOption(
        match["place"],
        match["name"],
        1 if numbers["mul"] is None else numbers["mul"],
        numbers["add"] or 0,
        low,
        high,
        multiple,
    )
    if low is not None and high is not None and high < low:
        raise _wrong(f"{text!r}: the maximum {high} is less than the minimum {low}")
    if option.mul == 0 or multiple == 0:
        raise _wrong(f"{text!r}: the factor and the multiple must be at least 1")
    relation = (option.mul, option.add) != (1, 0)
    if option.has_range and relation:
        raise _wrong(f"{text!r}: give the range of {option.name!r} in an option without a formula")
    if option.name in (AUTO, DYNAMIC) and (option.has_range or relation):
        raise _wrong(f"{text!r}: {option.name!r} cannot be the name of a dim")
    return option


def dynamic_shapes(
    options: Sequence[DimOption], model: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Any:
    """The `dynamic_shapes` argument of `aot_export` for these options.

    Raises:
        typer.BadParameter: an input or axis does not exist.
    """
    if any(not option.place for option in options):
        return AUTO
    leaves = _leaves(model, tuple(args), dict(kwargs or {}))
    ranges = {option.name: option for option in options if option.has_range}
    result: dict[str, Any] = {}
    for option in options:
        name, axis = _place(option.place, leaves)
        if axis is None:
            result[name] = _size(option, ranges)
        else:
            result.setdefault(name, {})[axis] = _size(option, ranges)
    return result


def _leaves(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The inputs by their names in the signature: `x`, `batch.ids`."""
    import torch

    from aotpack.export.ir import pytree_spec
    from aotpack.export.torch_compat import pytree

    pytree_spec.register_dataclasses((args, kwargs))
    function = model.forward if isinstance(model, torch.nn.Module) else model
    names = pytree_spec.leaf_names(args, kwargs, pytree_spec.positional_names(function, len(args)))
    return dict(zip(names, pytree.tree_leaves((args, kwargs)), strict=True))


def _place(place: str, leaves: Mapping[str, Any]) -> tuple[str, int | None]:
    """The input, and its axis if it is a tensor."""
    if place in leaves and not hasattr(leaves[place], "shape"):
        return place, None
    name, _, text = place.rpartition(".")
    if place in leaves:
        raise _wrong(f"{place!r} is a tensor with {leaves[place].ndim} dims; select one, such as {place}.0=batch")
    if name not in leaves or not text.isdecimal():
        wanted = name if text.isdecimal() and name else place
        raise _wrong(f"the model has no input {wanted!r}; it has {', '.join(leaves) or 'none'}")
    value = leaves[name]
    if not hasattr(value, "shape"):
        raise _wrong(f"the input {name!r} is a {type(value).__name__}, which has no axes; use {name}=NAME")
    if int(text) >= value.ndim:
        raise _wrong(f"the input {name!r} has {value.ndim} dims; there is no axis {text}")
    return name, int(text)


def _size(option: DimOption, ranges: Mapping[str, DimOption]) -> Any:
    if option.name in (AUTO, DYNAMIC):
        return option.name
    given = ranges.get(option.name)
    if given is None and (option.mul, option.add) == (1, 0):
        return option.name
    given = given or option
    dim = Dim(option.name, UNSTATED if given.min is None else given.min, given.max, given.multiple_of or 1)
    return dim if (option.mul, option.add) == (1, 0) else DerivedDim(dim, option.mul, option.add)


def _wrong(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint="'--dim'")
