"""How much memory the values of an entry's modules need, from the description in the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotpack.archive.memory_plan import peak_bytes, plan_memory, with_known_end
from aotpack.targets import BY_NAME

if TYPE_CHECKING:
    from aotpack.archive.description import DescribedStep, DescribedVariant, Description


def memory_of(description: Description | None) -> dict[str, Any]:
    """Entry → variant → target → its steps: the bytes of the arena, and of arena and outputs at the peak; both None
    for steps of which the memory is not known. At the sizes of the example.
    """
    return {
        entry: {
            variant: {target: [_of_step(target, step) for step in steps] for target, steps in described.targets.items()}
            for variant, described in variants.items()
        }
        for entry, variants in (description or {}).items()
    }


def peak_of(described: DescribedVariant | None, target: str) -> int | None:
    """The peak of the step of a variant that needs most; None if it is not known."""
    steps = described.targets.get(target, ()) if described is not None else ()
    peaks = [_of_step(target, step)["peak_bytes"] for step in steps]
    return max((peak for peak in peaks if peak is not None), default=None)


def _of_step(target: str, step: DescribedStep) -> dict[str, int | None]:
    known = BY_NAME.get(target)
    if not step.blocks or known is None or known.backend != "cpu":
        return {"arena_bytes": None, "peak_bytes": peak_bytes(step.blocks) if step.blocks else None}
    arena = plan_memory(with_known_end(step.blocks)).nbytes
    outputs = [block for block in step.blocks if block.output]
    return {"arena_bytes": arena, "peak_bytes": arena + peak_bytes(outputs)}
