"""The dims of a user: their forms, and checks that they agree with each other and with the example call."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from torch.export import Dim as TorchDim

from aotpack.errors import CaptureError
from aotpack.spec import DYNAMIC, UNSTATED, DerivedDim, Dim, DimRef

AUTO = "auto"
STATIC = "static"
_HINTS = (AUTO, DYNAMIC, STATIC)

# The range of an int that may have any value.
LEAST = -(2**63)


def hint(size: Any) -> str | None:
    """ "auto", "dynamic" or "static", when `size` is one of them or torch's counterpart."""
    if isinstance(size, str):
        return size if size in _HINTS else None
    if type(size) is type(TorchDim.AUTO):
        return str(size.type.name).lower()
    return None


def bounds(size: Any) -> tuple[int | None, int | None]:
    """The bounds of one of torch's hints: `Dim.AUTO(min=2, max=10)`."""
    return getattr(size, "min", None), getattr(size, "max", None)


def derived(size: Any) -> DerivedDim | None:
    """A size with a name as mul * dim + add; None for anything else. A string is the name of a dim of any range."""
    if isinstance(size, str):
        return DerivedDim(Dim(size), 1, 0) if size.isidentifier() else None
    if isinstance(size, Dim):
        return DerivedDim(size, 1, 0)
    if isinstance(size, DerivedDim):
        return size
    if not isinstance(size, TorchDim):
        return None
    function = getattr(size, "fn", None)
    root: Any = size if function is None else size.root  # type: ignore[attr-defined]
    add = 0 if function is None else function(0)
    mul = 1 if function is None else function(1) - add
    high = root.max if isinstance(root.max, int) else None
    return DerivedDim(Dim(root.__name__, int(root.min) or UNSTATED, high), mul, add)


def shown(value: Any) -> str:
    """A value in a message: short, with its type."""
    text = repr(value)
    return f"a {type(value).__name__}" if len(text) > 40 or "\n" in text else f"{text}, a {type(value).__name__}"


@dataclass
class DimNames:
    """The dims of a call by name, and their values in the example."""

    dims: dict[str, Dim] = field(default_factory=dict)
    # Named by a string only so far, which leaves the range to another place.
    _open: set[str] = field(default_factory=set)
    _examples: dict[str, tuple[int, str]] = field(default_factory=dict)

    def fresh(self, text: str) -> str:
        """A name made of `text` that no dim has."""
        name = re.sub(r"\W", "_", text)
        while name in self.dims:
            name += "_"
        return name

    def enter(self, size: DerivedDim, actual: int, where: str, *, by_name: bool = False) -> DimRef:
        """Enters a size with a name.

        Args:
            size: as the user wrote it.
            actual: in the example call.
            where: the input and axis, for messages.
            by_name: the dim was named by a string, which says nothing of its range.

        Raises:
            CaptureError: it contradicts another size, or `actual`.
        """
        dim = size.root
        known = self.dims.get(dim.name)
        if known is None or (dim.name in self._open and not by_name):
            _check(dim, where)
            self.dims[dim.name] = dim
            (self._open.add if by_name else self._open.discard)(dim.name)
        elif not by_name and dim != known:
            raise CaptureError(
                f"{where}: there are two dims named {dim.name!r}: {known} and {dim}",
                hint="use one Dim for equal sizes, and different names otherwise",
            )
        if size.mul < 1:
            raise CaptureError(
                f"{where}: {size} does not grow with {dim.name!r}", hint="multiply dims by positive ints"
            )
        ref = DimRef(dim.name, size.mul, size.add)
        value, remainder = divmod(actual - ref.add, ref.mul)
        if remainder or (value < 0 and dim.min >= 0):
            raise CaptureError(
                f"{where} is {actual} in the example call, which is not {ref}",
                hint="change the example, or the relation",
            )
        first, source = self._examples.setdefault(ref.dim, (value, where))
        if first != value:
            raise CaptureError(
                f"{where} is {ref} = {actual} in the example call, so {ref.dim!r} is {value}, but {first} by {source}",
                hint="a dim has one size in a call: use different names for these sizes, or change the example",
            )
        return ref

    def check_examples(self) -> None:
        """Raises CaptureError for an example call out of the range of a dim."""
        for name, (value, where) in self._examples.items():
            dim = self.dims[name]
            if value < dim.min or (dim.max is not None and value > dim.max):
                raise CaptureError(
                    f"the dim {name!r} is {value} in the example call ({where}), but {dim}",
                    hint="use an example within the range",
                )
            if value % dim.multiple_of:
                raise CaptureError(
                    f"the dim {name!r} is {value} in the example call ({where}), which is not a multiple of "
                    f"{dim.multiple_of}",
                    hint="use an example that is a multiple",
                )


def _check(dim: Dim, where: str) -> None:
    if not isinstance(dim.name, str) or not dim.name.isidentifier() or dim.name in _HINTS:
        raise CaptureError(f"{where}: {dim.name!r} cannot name a dim", hint='a name is an identifier, such as "batch"')
    for key, value in {"min": dim.min, "max": dim.max, "multiple_of": dim.multiple_of}.items():
        if (not isinstance(value, int) or isinstance(value, bool)) and not (key == "max" and value is None):
            raise CaptureError(f"{where}: {key} of the dim {dim.name!r} is {value!r}, which is not an int")
    if dim.max is not None and dim.max < dim.min:
        raise CaptureError(f"{where}: the range of the dim {dim.name!r} is empty: {dim}")
    if dim.multiple_of < 1:
        raise CaptureError(f"{where}: multiple_of of the dim {dim.name!r} is {dim.multiple_of}; it must be at least 1")
