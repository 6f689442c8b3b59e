"""The steps of `aotpack train`, with their progress on stderr."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aotpack.cli.common import stderr_console

if TYPE_CHECKING:
    from aotpack.cli.checkpoints import Checkpoints
    from aotpack.cli.signals import Interruption
    from aotpack.cli.training_data import Samples
    from aotpack.runtime import Context, Entry
    from aotpack.spec import Signature

# Of the mean that is shown.
_RECENT = 20


@dataclass
class Result:
    """What a run did: the loss of each step, and how long they took."""

    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    samples_per_second: float = 0.0


def run_steps(
    entry: Entry,
    signature: Signature,
    samples: Samples,
    values: Mapping[str, Any],
    steps: range,
    checkpoints: Checkpoints | None,
    context: Context,
    interruption: Interruption,
) -> Result:
    """Runs the steps. Where they are interrupted, there is a checkpoint of the last whole step."""
    loss_at = next(i for i, output in enumerate(signature.outputs) if output.name.rpartition(".")[2] == "loss")
    result, console = Result(), stderr_console()
    columns = (
        TextColumn("step"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TextColumn("{task.fields[rate]} samples/s"),
        TimeRemainingColumn(),
    )
    began, done = time.perf_counter(), steps.start
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=steps.stop, completed=steps.start, loss="-", rate="-")
        try:
            for step in steps:
                rows = iter(samples.of_step(step))
                arrays = [next(rows) if v.number is None else values[v.name] for v in signature.inputs]
                # The state and the number of its steps change together.
                with interruption.held():
                    loss_value = entry.run(arrays)[loss_at]
                    done = step + 1
                result.losses.append(float(np.asarray(loss_value)))
                result.seconds = time.perf_counter() - began
                result.samples_per_second = len(result.losses) * samples.batch / max(result.seconds, 1e-9)
                loss, rate = f"{np.mean(result.losses[-_RECENT:]):.4g}", f"{result.samples_per_second:.0f}"
                progress.update(task, completed=done, loss=loss, rate=rate)
                saved = checkpoints is not None and checkpoints.after(context, done, last=done == steps.stop)
                if not console.is_terminal and (saved or done == steps.stop or done % samples.batches == 0):
                    console.print(f"step {done}/{steps.stop}  loss {loss}  {rate} samples/s", soft_wrap=True)
        except BaseException:
            # A step that fails or is interrupted leaves the state of the step before it.
            if checkpoints is not None and done > steps.start:
                checkpoints.after(context, done, last=True)
            raise
    return result
