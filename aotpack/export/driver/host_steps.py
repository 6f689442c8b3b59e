"""What modules for devices run on the host: reported by a build, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aotpack.export.backends.backend import HostStep, LoweredModule
from aotpack.export.backends.unsupported_operators import OperatorUse, refuse
from aotpack.export.ir.program import Change, PassReport

# The name of the report, beside those of the passes.
NAME = "host-steps"
_HINT = "write the model with operators that have a GPU kernel (docs/gpu.md), or build without --no-host-steps"


def host_steps(modules: Iterable[LoweredModule]) -> tuple[HostStep, ...]:
    """The host steps of one program's modules. They are the same for every GPU."""
    return next((module.host_steps for module in modules if module.host_steps), ())


def refuse_host_steps(modules: Iterable[LoweredModule]) -> None:
    """Raises UnsupportedOperatorError if there are any: each operator with its places in the model."""
    steps = [step for module in modules for step in module.host_steps]
    uses = [OperatorUse(step.operator, step.module, step.line) for step in steps]
    refuse(list(dict.fromkeys(uses)), verdict="supported on GPUs", hint=_HINT)


def report_of(steps: Sequence[HostStep]) -> PassReport:
    """The steps as `reports/passes.json` has them."""
    count = "1 call" if len(steps) == 1 else f"{len(steps)} calls"
    return PassReport(NAME, f"{count} on the host", tuple(Change(step.module, step.describe()) for step in steps))
