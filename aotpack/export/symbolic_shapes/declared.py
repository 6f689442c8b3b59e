"""The user's declarations that torch.export does not get: names, ranges, multiples and relations of sizes.

Every size that may vary is `Dim.AUTO` for torch.export, whatever the user calls it: torch assumes nothing and refuses
nothing by itself; `trace` states the user's relations and ranges by `torch._check` before the model runs, and
`DimTable` compares what the model demands with what was declared, in the user's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy

from aotpack.spec import Dim, DimRef

# The "axis" of an int argument that varies: the number itself.
NUMBER = -1


@dataclass(frozen=True)
class Declared:
    """The user's dims.

    Attributes:
        sizes: for each leaf of `(args, kwargs)` in pytree order: axis → the size there, for each axis that has a name;
            `NUMBER` → the value of an int argument. Dynamic axes without a name ("auto") are not included.
        dims: by name, the ranges and multiples; `min` is 0 and `max` None where the user gave none.
        explicit_min: the names whose `min` the user gave: less than that range may not come out silently.
    """

    sizes: tuple[Mapping[int, DimRef], ...]
    dims: Mapping[str, Dim] = field(default_factory=dict)
    explicit_min: frozenset[str] = frozenset()

    @property
    def bounded(self) -> frozenset[str]:
        """The names of dims with a bound of the user's: the program must be right for all of their sizes."""
        return self.explicit_min | {name for name, dim in self.dims.items() if dim.max is not None}


@dataclass(frozen=True)
class Note:
    """Something that a build has to say of the dims: of what (`x.shape[0]`, a dim's name), and what."""

    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}"


@dataclass(frozen=True)
class Question:
    """Something that the trace relies on, to be tried out: the model may work without it.

    Attributes:
        condition: over the symbols of dims.
        where: the line of the model that needs it, as the end of a message; "" where it is not known.
        doubtful: an operator asked, often for a layout that makes no difference to results. Such a condition is among
            the checks of the program only once a trial has shown that it is needed.
    """

    condition: sympy.Basic
    where: str = ""
    doubtful: bool = False
