"""`aotpack build --dim x:0=batch:1:64`: dynamic shapes from the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

_FORM = re.compile(r"(?P<input>[^:=]+):(?P<axis>\d+)=(?P<name>[A-Za-z_]\w*)(:(?P<min>\d+))?(:(?P<max>\d+))?")


@dataclass(frozen=True)
class DimOption:
    """Axis `axis` of the argument `input` is the dim `name`, in [min, max]; `max` None: no bound."""

    input: str
    axis: int
    name: str
    min: int | None
    max: int | None


def parse_dims(options: Sequence[str] | None) -> list[DimOption]:
    """Raises typer.BadParameter for what is not INPUT:AXIS=NAME[:MIN[:MAX]], or contradicts another."""
    result: list[DimOption] = []
    bounds: dict[str, tuple[int | None, int | None]] = {}
    for text in options or []:
        match = _FORM.fullmatch(text)
        if not match:
            raise typer.BadParameter(
                f"{text!r} is not INPUT:AXIS=NAME[:MIN[:MAX]], such as x:0=batch:1:64", param_hint="'--dim'"
            )
        low, high = (None if match[key] is None else int(match[key]) for key in ("min", "max"))
        if low is not None and high is not None and high < low:
            raise typer.BadParameter(f"{text!r}: {high} is less than {low}", param_hint="'--dim'")
        option = DimOption(match["input"], int(match["axis"]), match["name"], low, high)
        # A dim that appears again without bounds is the same dim.
        known = bounds.setdefault(option.name, (low, high))
        if (low, high) not in (known, (None, None)):
            raise typer.BadParameter(f"the dim {option.name!r} is given two ranges", param_hint="'--dim'")
        if any((option.input, option.axis) == (other.input, other.axis) for other in result):
            raise typer.BadParameter(f"{option.input}:{option.axis} is given twice", param_hint="'--dim'")
        result.append(DimOption(option.input, option.axis, option.name, *known))
    return result


def dynamic_shapes(
    options: Sequence[DimOption], model: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The `dynamic_shapes` of torch.export for these options: argument name → {axis: torch.export.Dim}.

    Raises typer.BadParameter when an argument or axis does not exist.
    """
    import torch

    function = model.forward if isinstance(model, torch.nn.Module) else model
    arguments = inspect.signature(function).bind(*args, **(kwargs or {})).arguments
    dims = {o.name: torch.export.Dim(o.name, min=o.min, max=o.max) for o in options}
    result: dict[str, Any] = dict.fromkeys(arguments)
    for option in options:
        if option.input not in arguments:
            raise typer.BadParameter(
                f"the model has no argument {option.input!r}; it has {', '.join(arguments)}", param_hint="'--dim'"
            )
        value = arguments[option.input]
        if not isinstance(value, torch.Tensor):
            raise typer.BadParameter(
                f"the argument {option.input!r} is a {type(value).__name__}, no tensor; "
                "use dynamic_shapes() in the source for nested arguments",
                param_hint="'--dim'",
            )
        if option.axis >= value.ndim:
            raise typer.BadParameter(
                f"the argument {option.input!r} has {value.ndim} dims; there is no axis {option.axis}",
                param_hint="'--dim'",
            )
        result[option.input] = (result[option.input] or {}) | {option.axis: dims[option.name]}
    return result
