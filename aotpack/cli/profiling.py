"""Measured times of the steps and kernels of an entry: `bench --per-kernel`, `inspect --profile` and `--trace`."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from aotpack.errors import AotpackError

if TYPE_CHECKING:
    import os

    from aotpack.archive import Entry as ArchiveEntry
    from aotpack.archive import Implementation
    from aotpack.archive.description import DescribedVariant
    from aotpack.runtime import Context, Entry, Model
    from aotpack.runtime.profile import ProfileEvent

NO_HOOKS = "the modules of the archive do not record the times of their kernels"
NO_HOOKS_HINT = "build the archive with `aotpack build --profile`, or build_archive with BuildOptions(profile=True)"

# Without a number of calls: the approximate duration, and bounds of the number.
_SECONDS = 2.0
_LEAST = 10
_MOST = 10_000


@dataclass(frozen=True)
class StepTime:
    """A step: the median of its seconds in a call."""

    step: int
    device: str
    seconds: float


@dataclass(frozen=True)
class KernelTime:
    """A kernel of a step: `count` times in a call, for `seconds` in total, the medians over all calls; `share` is that
    of the call. `operators` and `nodes` are what it computes; nodes are those of `inspect --graph`.
    """

    step: int
    kernel: int
    name: str
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    count: int
    seconds: float
    share: float


@dataclass(frozen=True)
class ProfileResult:
    """What was measured.

    Attributes:
        entry, variant, target: what ran.
        device, threads: where, with how many threads.
        inputs: name and shape of each input, and where they come from.
        calls: the number of measured calls.
        seconds: the median of a call, from the check of its inputs to the end of the last step.
        steps, kernels: the times of its parts.
        latencies: seconds by the name of a node, for `aotpack.export.partition`. The time of a kernel is divided evenly
            among the nodes that it computes.
        timeline: step, kernel (None: the whole), begin and end of the parts of the median call.
        has_kernels: whether the modules record kernels.
    """

    entry: str
    variant: str
    target: str
    device: str
    threads: int
    inputs: tuple[Mapping[str, Any], ...]
    inputs_from: str
    calls: int
    seconds: float
    steps: tuple[StepTime, ...]
    kernels: tuple[KernelTime, ...]
    latencies: Mapping[str, float]
    timeline: tuple[tuple[int | None, int | None, float, float], ...]
    has_kernels: bool

    def to_dict(self) -> dict[str, Any]:
        """As a JSON-compatible dict."""
        return asdict(self)


def call_inputs(archive: str | os.PathLike[str], runner: Entry, sizes: Mapping[str, int]) -> tuple[list[Any], str]:
    """The inputs of a call and where they come from: the archive's example, or generated for the sizes of dims."""
    from aotpack.archive import ArchiveReader
    from aotpack.cli.arrays import golden_inputs, random_inputs

    description = _described_entry(runner)
    if sizes or not description.goldens:
        return random_inputs(description, sizes), "generated"
    with ArchiveReader(archive) as reader:
        return golden_inputs(reader, description.goldens[0]), "the archive's example"


def profile(
    archive: str | os.PathLike[str],
    model: Model,
    *,
    entry: str | None = None,
    sizes: Mapping[str, int] | None = None,
    threads: int | None = None,
    calls: int | None = None,
    warmup: int = 5,
) -> ProfileResult:
    """Calls an entry and measures its parts.

    Raises:
        AotpackError: a call fails.
    """
    context = model.context(num_threads=threads or 0)
    runner: Entry = context.entry(entry) if entry else context
    arrays, source = call_inputs(archive, runner, sizes or {})
    given = arrays
    described = _described_entry(runner)
    if model.device != "cpu":
        values = zip(described.inputs, arrays, strict=True)
        given = [array if value.number else runner.to_device(array) for value, array in values]
    for _ in range(max(1, warmup)):
        runner.run(given)
    measured = _measure(context, runner, given, calls)
    context.set_profiling(False)
    variant = next(each for each in described.variants if each.name == runner.variant)
    targets = runner.target.split(", ")
    implementation = next(each for each in variant.implementations if each.target in targets)
    programs = _programs(archive).get(runner.entry_name, {})
    inputs = tuple(
        {"name": value.name, "shape": list(array.shape)} for value, array in zip(described.inputs, arrays, strict=True)
    )
    return _summary(
        measured, implementation, programs.get(variant.name), runner, variant.name, model.device, inputs, source
    )


def require_kernels(result: ProfileResult) -> None:
    """Raises AotpackError where kernels have no times."""
    if not result.has_kernels:
        raise AotpackError(NO_HOOKS, hint=NO_HOOKS_HINT)


def _programs(archive: str | os.PathLike[str]) -> Mapping[str, Mapping[str, DescribedVariant]]:
    from aotpack.archive import ArchiveReader
    from aotpack.archive.description import read_description

    with ArchiveReader(archive) as reader:
        return read_description(reader) or {}


def _described_entry(runner: Entry) -> ArchiveEntry:
    found = runner.manifest.entry(runner.entry_name)
    assert found is not None
    return found


def _measure(context: Context, runner: Entry, given: list[Any], calls: int | None) -> list[list[ProfileEvent]]:
    """The events of each call."""
    context.set_profiling(True)
    measured: list[list[ProfileEvent]] = []
    began = time.perf_counter()
    while len(measured) < (calls or _MOST):
        runner.run(given)
        measured.append(context.profile())
        if calls is None and len(measured) >= _LEAST and time.perf_counter() - began > _SECONDS:
            break
    return measured


def _summary(
    measured: list[list[ProfileEvent]],
    implementation: Implementation,
    described: DescribedVariant | None,
    runner: Entry,
    variant: str,
    device: str,
    inputs: tuple[Mapping[str, Any], ...],
    source: str,
) -> ProfileResult:
    from statistics import median

    manifest = runner.manifest
    # By step and kernel, the seconds of each call; kernels of branches that a call did not take have none.
    totals: dict[tuple[int | None, int | None], list[float]] = {}
    counts: dict[tuple[int | None, int | None], list[int]] = {}
    for events in measured:
        once: dict[tuple[int | None, int | None], list[float]] = {}
        for event in events:
            once.setdefault((event.step, event.kernel), []).append(event.seconds)
        for key, parts in once.items():
            totals.setdefault(key, []).append(math.fsum(parts))
            counts.setdefault(key, []).append(len(parts))

    def typical(key: tuple[int | None, int | None]) -> float:
        found = totals.get(key, [])
        # A kernel that less than half of the calls run has the median 0.
        return median(found + [0.0] * (len(measured) - len(found)))

    whole = typical((None, None))
    told = None if described is None else described.targets.get(implementation.target)
    kernels = []
    for number, step in enumerate(implementation.steps):
        for index, kernel in enumerate(step.module.kernels):
            if (number, index) not in totals:
                continue
            seconds = typical((number, index))
            nodes = () if told is None or described is None else told[number].kernels[index]
            kernels.append(
                KernelTime(
                    number,
                    index,
                    kernel.name,
                    kernel.ops,
                    tuple(described.nodes[node].name for node in nodes) if described is not None else (),
                    round(median(counts[number, index])),
                    seconds,
                    seconds / whole if whole else 0.0,
                )
            )
    from aotpack.cli.steps import device_name

    by_length = sorted(measured, key=lambda events: events[0].seconds)
    return ProfileResult(
        entry=runner.entry_name,
        variant=variant,
        target=implementation.target,
        device=device,
        threads=runner.num_threads,
        inputs=inputs,
        inputs_from=source,
        calls=len(measured),
        seconds=whole,
        steps=tuple(
            StepTime(number, device_name(step.device, manifest), typical((number, None)))
            for number, step in enumerate(implementation.steps)
        ),
        kernels=tuple(kernels),
        latencies=_latencies(kernels, described),
        timeline=tuple((e.step, e.kernel, e.begin, e.end) for e in by_length[len(by_length) // 2]),
        has_kernels=any("mark" in step.module.imports for step in implementation.steps),
    )


def _latencies(kernels: list[KernelTime], described: DescribedVariant | None) -> dict[str, float]:
    """Seconds by node of the program. A node of a graph inside counts for the call of the graph."""
    if described is None or not kernels:
        return {}
    callers = {graph: node.name for node in described.nodes for graph in node.graphs}

    def outermost(name: str) -> str:
        graph = name.rpartition(".")[0]
        while graph in callers:
            name = callers[graph]
            graph = name.rpartition(".")[0]
        return name

    found = {node.name: 0.0 for node in described.nodes if node.kind == "call" and "." not in node.name}
    for kernel in kernels:
        for node in kernel.nodes:
            name = outermost(node)
            found[name] = found.get(name, 0.0) + kernel.seconds / len(kernel.nodes)
    return found
