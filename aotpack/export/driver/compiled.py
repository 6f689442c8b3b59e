"""Units of a build with their compiled modules."""

from __future__ import annotations

from dataclasses import dataclass

from aotpack.export.backends.backend import Backend, CompiledCode, HostStep, LoweredModule
from aotpack.export.driver.host_steps import host_steps
from aotpack.export.ir.program import Program
from aotpack.export.ir.units import Unit
from aotpack.export.partition.split import SplitProgram


@dataclass(frozen=True)
class CompiledModule:
    """A module for one target: the program after its backend's passes, what it was lowered and compiled to; `stage` is
    the index of the unit's stage that it computes.
    """

    backend: Backend
    program: Program
    lowered: LoweredModule
    compiled: CompiledCode
    stage: int = 0


@dataclass(frozen=True)
class CompiledUnit:
    """A unit, after the passes that are true on every device, with its modules: one for each target and stage."""

    unit: Unit
    modules: tuple[CompiledModule, ...]
    split: SplitProgram | None = None

    def stages(self) -> list[list[CompiledModule]]:
        """The modules of each stage."""
        count = 1 if self.split is None else len(self.split.stages)
        return [[module for module in self.modules if module.stage == stage] for stage in range(count)]

    @property
    def host_steps(self) -> tuple[HostStep, ...]:
        """What modules for devices run on the host, in order."""
        return tuple(step for stage in self.stages() for step in host_steps(module.lowered for module in stage))
