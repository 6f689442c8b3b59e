"""Classes that archives of the tests name in their specs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Batch:
    x: Any
    rest: list[Any]


@dataclass
class Result:
    plus: Any
    minus: Any
    extra: int = 0
