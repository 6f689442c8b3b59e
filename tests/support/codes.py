"""Random codes, of which most are defined for most values of their dims."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from aotpack.archive.code import CodeError, type_of
from aotpack.spec import Code

TOP = (1 << 63) - 1
BOTTOM = -TOP - 1

_OPERATORS = ["+", "-", "*", "//", "%", "**", "min", "max", "neg", "abs", "/", "pow", "sqrt", "exp", "log", "log2"]
_OPERATORS += ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "float", "trunc", "floor", "ceil"]
_OPERATORS += ["round", "==", "!=", "<", "<=", "and", "or", "not", "select"]
_CONSTANTS: list[Any] = [0, 1, -1, 2, 3, 7, 63, TOP, BOTTOM, 0.0, -0.0, 0.5, -2.5, 1e300, 9.3e18, True, False]


def random_code(generator: random.Random, dims: Sequence[str], *, length: int = 10) -> Code:
    """A code of about `length` items over `dims`, of any type."""
    pushes = _CONSTANTS + [f"${dim}" for dim in dims] * 4
    while True:
        code: list[Any] = []
        while len(code) < length:
            # Whatever fits next; operators twice as often as pushes, where they fit at all.
            word = generator.choice(pushes if generator.random() < 0.35 else _OPERATORS)
            try:
                type_of((*code, word), dims)
            except CodeError as error:
                if "leaves" not in str(error):
                    continue
            code.append(word)
        # The longest beginning that leaves one value.
        for end in range(length, 0, -1):
            try:
                type_of(tuple(code[:end]), dims)
            except CodeError:
                continue
            if end > length // 2:
                return tuple(code[:end])
            break
