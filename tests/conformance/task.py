"""What the parts of the tool tell each other: plain values, without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FORWARD = "forward"
BACKWARD = "backward"

# How a case can end. What is no `ok` has a reason beside it.
OK = "ok"
WRONG = "wrong"
CRASH = "crash"
CALL_ERROR = "call error"
BUILD_ERROR = "build error"
TIMEOUT = "timeout"
REFUSED = "refused"
TORCH_CANNOT = "torch cannot"
SKIPPED = "skipped"

# These make an operator fail, worst first.
FAILURES = (WRONG, CRASH, CALL_ERROR, TIMEOUT, BUILD_ERROR)


@dataclass(frozen=True)
class Platform:
    """What archives are built for, and where they run.

    Attributes:
        target: a name of a target, or `native`.
        device: of `aotpack.load`; where it is None and the target is a GPU, archives are built and not run.
        driver: a driver without a GPU, on which kernels are interpreted (tests/support/interpreted_gpu).
    """

    target: str = "native"
    device: str | None = None
    driver: str | None = None

    @property
    def is_gpu(self) -> bool:
        return self.target.startswith("cuda")

    @property
    def runs(self) -> bool:
        return self.device is not None or not self.is_gpu


@dataclass(frozen=True)
class Part:
    """Some cases of an operator in a dtype. A case is named by its position among those of the operator and dtype."""

    op: str
    dtype: str
    cases: tuple[int, ...]

    @property
    def key(self) -> tuple[str, str]:
        return (self.op, self.dtype)


@dataclass(frozen=True)
class Task:
    """What is built into one archive.

    Attributes:
        parts: cases of operators.
        mode: `forward` or `backward`.
        probe: find out whether code can be generated for it, and no more.
        probed: each part has been tried so alone.
    """

    parts: tuple[Part, ...]
    mode: str = FORWARD
    probe: bool = False
    probed: bool = False

    @property
    def size(self) -> int:
        return sum(len(part.cases) for part in self.parts)


@dataclass(frozen=True)
class Ending:
    """How one case ended.

    Attributes:
        kind: one of those above.
        text: for `ok` the rule by which it was found right, else the reason.
        operators: those that an UnsupportedOperatorError named.
    """

    kind: str
    text: str = ""
    operators: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of a task: how each case ended, or why there is no archive for all of them together."""

    endings: dict[tuple[str, str, int], Ending] = field(default_factory=dict)
    failure: Ending | None = None
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """The result of an operator in a dtype, as it is written to the file of results.

    Attributes:
        op, dtype, mode: what was run.
        samples: how many samples the database has.
        cases: how many of them differ in more than values.
        chosen: how many of these were run; less than `cases` where a limit was set.
        endings: how many of the chosen ended so: kind → number.
        rules: how many were found right by which rule.
        reasons: distinct (kind, reason, number, number of one such case), the worst first.
        operators: what UnsupportedOperatorErrors named.
        seconds: of workers, its share of groups included.
    """

    op: str
    dtype: str
    mode: str
    samples: int
    cases: int
    chosen: int
    endings: dict[str, int]
    rules: dict[str, int]
    reasons: list[tuple[str, str, int, int]]
    operators: list[str]
    seconds: float

    @property
    def verdict(self) -> str:
        """`passes`, `passes n of m`, `refused`, `torch cannot`, `fails` or `nothing to run`."""
        if any(self.endings.get(kind) for kind in FAILURES):
            return "fails"
        passed, refused = self.endings.get(OK, 0), self.endings.get(REFUSED, 0)
        if refused and passed:
            return f"passes {passed} of {passed + refused}"
        if refused:
            return "refused"
        if passed:
            return "passes"
        return "torch cannot" if self.endings.get(TORCH_CANNOT) else "nothing to run"

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Record:
        return cls(**{**value, "reasons": [tuple(item) for item in value["reasons"]]})
