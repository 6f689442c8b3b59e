"""What a build returns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotpack.archive.algorithms import MeasuredAlgorithms
from aotpack.export.backends.backend import HostStep
from aotpack.export.driver.self_check import CheckReport
from aotpack.export.ir.program import PassReport


@dataclass(frozen=True)
class AlgorithmReport:
    """What was measured of the algorithms of convolutions.

    Attributes:
        measured: the times, and what was chosen.
        seconds: how long that took, with what the build waited for.
        problem: why something was not measured; None otherwise.
    """

    measured: tuple[MeasuredAlgorithms, ...] = ()
    seconds: float = 0.0
    problem: str | None = None


@dataclass(frozen=True)
class BuildReport:
    """The result of a build: the archive, the duration of each phase in seconds, the reports of the passes
    (entry → variant → passes), the result of the example calls, what modules for GPUs run on the host
    (entry → variant → calls), the configurations that were chosen for autotuned Triton kernels of the user, and what
    was measured of algorithms.
    """

    path: Path
    size: int
    targets: tuple[str, ...]
    seconds: dict[str, float]
    passes: dict[str, dict[str, tuple[PassReport, ...]]]
    cache_hits: int
    cache_misses: int
    check: CheckReport
    host_steps: dict[str, dict[str, tuple[HostStep, ...]]] = field(default_factory=dict)
    triton_configs: tuple[str, ...] = ()
    algorithms: AlgorithmReport = field(default_factory=AlgorithmReport)

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON-compatible dict."""
        result = dataclasses.asdict(self)
        result["path"] = str(self.path)
        return result
