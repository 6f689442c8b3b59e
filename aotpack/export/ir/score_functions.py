"""Functions of single attention scores as straight-line programs, and as the text that a graph holds.

A function computes one value for each batch, head, query and key. Its steps are applied in order; the last one is its
result. They are few, so that each has a meaning in torch (`ops/flex_attention.py`) and one in C++
(`backends/cpu/score_source.py`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

# The axes of scores.
BATCH, HEAD, QUERY, KEY = range(4)


@dataclass(frozen=True)
class Step:
    """One value of a function.

    Attributes:
        name: what computes it, one of
            `score`: the score that the function gets;
            `position`: the position on the axis `where[0]`, which is less than `where[1]` (-1: not known);
            `load`: the operand `where[0]`, whose dims lie on the axes `where[1:]`;
            `gather`: the element of the operand `where[0]` at the indices `inputs`;
            `number`: the integer operand `where[0]`;
            `literal`: `value`;
            `cast`: the value of `inputs` in this dtype;
            or an elementwise operator, such as "add".
        dtype: torch's name of the result's dtype; in this dtype the inputs of operators arrive, but those that compare
            and choose.
        inputs: the numbers of earlier steps.
        where: see above.
        value: a literal, as text: infinities and NaN have no JSON.
    """

    name: str
    dtype: str
    inputs: tuple[int, ...] = ()
    where: tuple[int, ...] = ()
    value: str = ""


@dataclass(frozen=True)
class ScoreFunctions:
    """What happens to scores of one attention, and which of them count.

    Attributes:
        dtype: of the scores.
        score: the steps to the new score; none: it stays.
        mask: the steps to whether a key takes part; none: each does.
    """

    dtype: str
    score: tuple[Step, ...]
    mask: tuple[Step, ...]

    def text(self) -> str:
        """The functions as a text; equal ones have equal texts."""
        plain = {"dtype": self.dtype, "score": [_plain(s) for s in self.score], "mask": [_plain(s) for s in self.mask]}
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def parse(text: str) -> ScoreFunctions:
    """The functions of a text that `ScoreFunctions.text` has made."""
    plain = json.loads(text)
    return ScoreFunctions(plain["dtype"], _steps(plain["score"]), _steps(plain["mask"]))


def _plain(step: Step) -> dict[str, Any]:
    return {name: value for name, value in asdict(step).items() if value not in ((), "")}


def _steps(plain: list[dict[str, Any]]) -> tuple[Step, ...]:
    return tuple(
        Step(s["name"], s["dtype"], tuple(s.get("inputs", ())), tuple(s.get("where", ())), s.get("value", ""))
        for s in plain
    )


# Operators of one input, of torch's names, whose result is of the input's dtype.
UNARY = (
    *("neg", "abs", "sign", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal"),
    *("tanh", "sigmoid", "sin", "cos", "erf", "floor", "ceil", "round", "trunc"),
)
# Those whose inputs are of one dtype and whose result is a bool.
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
