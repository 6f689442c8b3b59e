"""A folder of stages: archives of their own, and `stages.json`, which says what they hand to each other.

`aotpack split` writes such folders. An engine that places stages on machines reads the plan and runs each stage where
it belongs; `run_in_order` runs all of them in one process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aotpack.errors import MalformedArchiveError

PLAN = "stages.json"
FORMAT = "aotpack-stages"
VERSION = 1


@dataclass(frozen=True)
class ValueSource:
    """Where a value comes from.

    Attributes:
        stage: the index of an earlier stage; None: the call.
        name: the name of an output of that stage, or of an input of the call.
    """

    stage: int | None
    name: str


@dataclass(frozen=True)
class StageRecord:
    """A stage of a plan.

    Attributes:
        archive: the name of its archive in the folder.
        device: the name of its logical device.
        inputs: where each input of its entry comes from, in order.
        outputs: the names of the outputs of its entry, in order.
        mutated: the names of inputs of the call that it writes to.
        weights_bytes: bytes of the constants that it reads.
        memory_bytes, seconds: its memory and latency as `partition` estimated them; None if they are not known.
    """

    archive: str
    device: str
    inputs: tuple[ValueSource, ...]
    outputs: tuple[str, ...]
    mutated: tuple[str, ...]
    weights_bytes: int
    memory_bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class StagePlan:
    """The stages of an entry, in an order in which they can run.

    Attributes:
        model: the name of the model.
        entry: the name of the entry, in the source archive and in that of each stage.
        signature: the signature of the entry, for people.
        inputs: the names of the inputs of a call, in order.
        results: where each output of a call comes from, in order.
        outputs: the names of the outputs of a call, in order.
        stages: the stages.
    """

    model: str
    entry: str
    signature: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    results: tuple[ValueSource, ...]
    stages: tuple[StageRecord, ...]

    def last_use(self, source: ValueSource) -> int:
        """The last stage that reads a value; -1: none does."""
        return max((i for i, stage in enumerate(self.stages) if source in stage.inputs), default=-1)

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Writes `stages.json`."""
        value = {"format": FORMAT, "version": VERSION, **asdict(self)}
        Path(folder, PLAN).write_text(f"{json.dumps(value, indent=2, ensure_ascii=False)}\n", encoding="utf-8")


def read_plan(folder: str | os.PathLike[str]) -> StagePlan:
    """The plan of a folder of stages.

    Raises:
        FileNotFoundError: the folder has no `stages.json`.
        MalformedArchiveError: the file is no plan that this version reads.
    """
    path = Path(folder, PLAN)
    try:
        value = json.loads(path.read_bytes())
        if (value["format"], value["version"]) != (FORMAT, VERSION):
            raise ValueError(f"format {value['format']!r}, version {value['version']!r}")
        stages = tuple(_stage(item, index) for index, item in enumerate(value["stages"]))
        return StagePlan(
            model=str(value["model"]),
            entry=str(value["entry"]),
            signature=str(value["signature"]),
            inputs=tuple(map(str, value["inputs"])),
            outputs=tuple(map(str, value["outputs"])),
            results=tuple(_source(item, len(stages)) for item in value["results"]),
            stages=stages,
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedArchiveError(f"{path} is not a plan of stages that this aotpack reads: {error}") from error


def run_in_order(
    plan: StagePlan, runners: Sequence[Callable[[list[Any]], list[Any]]], inputs: Sequence[Any]
) -> list[Any]:
    """Runs the stages of a call one after the other.

    Args:
        plan: the plan.
        runners: for each stage, what runs its entry with a list of inputs, such as `Entry.run`.
        inputs: the inputs of the call, in order.

    Returns:
        The outputs of the call, in order.
    """
    values: dict[ValueSource, Any] = {
        ValueSource(None, name): value for name, value in zip(plan.inputs, inputs, strict=True)
    }
    for index, (stage, run) in enumerate(zip(plan.stages, runners, strict=True)):
        outputs = run([values[source] for source in stage.inputs])
        values.update((ValueSource(index, name), value) for name, value in zip(stage.outputs, outputs, strict=True))
    return [values[source] for source in plan.results]


def _stage(value: Mapping[str, Any], index: int) -> StageRecord:
    archive = str(value["archive"])
    if Path(archive).name != archive:
        raise ValueError(f"the archive {archive!r} of stage {index} is not a name of a file in the folder")
    return StageRecord(
        archive=archive,
        device=str(value["device"]),
        inputs=tuple(_source(item, index) for item in value["inputs"]),
        outputs=tuple(map(str, value["outputs"])),
        mutated=tuple(map(str, value["mutated"])),
        weights_bytes=int(value["weights_bytes"]),
        memory_bytes=None if value["memory_bytes"] is None else int(value["memory_bytes"]),
        seconds=None if value["seconds"] is None else float(value["seconds"]),
    )


def _source(value: Mapping[str, Any], stages: int) -> ValueSource:
    stage = value["stage"]
    if stage is not None and (not isinstance(stage, int) or not 0 <= stage < stages):
        raise ValueError(f"stage {stage!r} is not an earlier one")
    return ValueSource(stage, str(value["name"]))
