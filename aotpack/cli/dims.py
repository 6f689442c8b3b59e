"""`aotpack build --dim x.0=batch:1..64`: what varies from call to call, from the command line."""

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
    "a size is INPUT.AXIS=NAME[:[MIN]..[MAX]][%MULTIPLE], such as x.0=batch:1..64, or depends on one, such as "
    "y.0=2*batch+1; a number is INPUT=NAME[:[MIN]..[MAX]] or INPUT=dynamic; `auto` alone is all sizes"
)


@dataclass(frozen=True)
class DimOption:
    """The size (or number) at `place`, a dotted path, is `mul` * the dim `name` + `add`.

    Attributes:
        min, max, multiple_of: of the dim; None where they were not given.
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
        """Whether the option says which sizes the dim may have."""
        return (self.min, self.max, self.multiple_of) != (None, None, None)


def parse_dims(options: Sequence[str] | None) -> list[DimOption]:
    """The options of `--dim`; `auto` is one whose place is empty.

    Raises:
        typer.BadParameter: an option has another form, or contradicts another one.
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
                raise _wrong(f"the dim {option.name!r} is given two ranges")
            ranges[option.name] = option
        result.append(option)
    if len(result) > 1 and any(not option.place for option in result):
        raise _wrong(f"`{AUTO}` stands for all sizes, and so alone")
    return result


def _parse(text: str) -> DimOption:
    if text == AUTO:
        return DimOption("", AUTO)
    match = _FORM.fullmatch(text)
    if match is None:
        raise _wrong(f"{text!r} is not understood: {_HELP}")
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
        raise _wrong(f"{text!r}: {high} is less than {low}")
    if option.mul == 0 or multiple == 0:
        raise _wrong(f"{text!r}: a dim is multiplied by 1 at least, and a multiple of 1 at least")
    relation = (option.mul, option.add) != (1, 0)
    if option.has_range and relation:
        raise _wrong(f"{text!r}: give the range of {option.name!r} where it stands alone")
    if option.name in (AUTO, DYNAMIC) and (option.has_range or relation):
        raise _wrong(f"{text!r}: {option.name!r} is no name of a dim")
    return option


def dynamic_shapes(
    options: Sequence[DimOption], model: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Any:
    """What `aot_export` is to be given as `dynamic_shapes` for these options.

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
    """The inputs by the names that the signature has for them: `x`, `batch.ids`."""
    import torch
    import torch.utils._pytree as pytree

    from aotpack.export.ir import pytree_spec

    pytree_spec.register_dataclasses((args, kwargs))
    function = model.forward if isinstance(model, torch.nn.Module) else model
    names = pytree_spec.leaf_names(args, kwargs, pytree_spec.positional_names(function, len(args)))
    return dict(zip(names, pytree.tree_leaves((args, kwargs)), strict=True))


def _place(place: str, leaves: Mapping[str, Any]) -> tuple[str, int | None]:
    """The input, and the axis of it if it is a tensor."""
    if place in leaves and not hasattr(leaves[place], "shape"):
        return place, None
    name, _, text = place.rpartition(".")
    if place in leaves:
        raise _wrong(f"{place!r} is a tensor with {leaves[place].ndim} dims: say which, such as {place}.0=batch")
    if name not in leaves or not text.isdecimal():
        wanted = name if text.isdecimal() and name else place
        raise _wrong(f"the model has no input {wanted!r}; it has {', '.join(leaves) or 'none'}")
    value = leaves[name]
    if not hasattr(value, "shape"):
        raise _wrong(f"the input {name!r} is a {type(value).__name__}, which has no axes: write {name}=NAME")
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
