"""`aotpack train`: trains with an archive that has a step of training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aotpack.cli.common import ArchivePath, AsJson, Threads, reports_errors
from aotpack.cli.devices import load_on

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotpack.runtime import Model
    from aotpack.spec import Signature

ENTRY = "train_step"


@reports_errors
def train(
    archive: ArchivePath,
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            "-d",
            metavar="FILE.npz|FOLDER",
            help="The samples: arrays by the names of the inputs, with a row for each sample; in a folder NAME.npy.",
        ),
    ],
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Steps in all, those before --resume too.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, help="In place of --steps: passes over the samples.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Samples of a step. Default: what the archive takes, or 64.")
    ] = None,
    lr: Annotated[float | None, typer.Option("--lr", help="The learning rate: the same as `--set lr=…`.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A hyperparameter that the archive takes. Repeatable."),
    ] = None,
    checkpoints: Annotated[
        Path | None, typer.Option("--checkpoints", "-o", metavar="FOLDER", help="Where checkpoints are written.")
    ] = None,
    save_every: Annotated[
        int | None, typer.Option("--save-every", min=1, help="Steps between checkpoints. Default: an epoch.")
    ] = None,
    keep: Annotated[int, typer.Option("--keep", min=1, help="How many checkpoints are kept.")] = 3,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint in the folder, if there is one.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of the order of the samples, and of random operators.")] = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the losses of this run; needs matplotlib.")
    ] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Trains the model of an archive that was captured with `mode="train_step"`. Does not need torch.

    **Examples**

        aotpack train digits.aotpack --data digits.npz --epochs 10 --lr 0.001 -o checkpoints
        aotpack train digits.aotpack --data digits.npz --epochs 20 --lr 0.001 -o checkpoints --resume
        aotpack train model.aotpack --data folder --steps 1000 --set lr=0.01 --plot loss.png --json

    A checkpoint is a `.safetensors` file with the whole state: parameters, buffers and the optimizer, by the names of
    torch's `state_dict`. A run that was killed goes on from the last one with the results that it would have had. If
    the loss is not finite, the command ends and the last checkpoint stays. `aotpack export-weights` makes weights of it
    for an archive for inference.
    """
    if (steps is None) == (epochs is None):
        raise typer.BadParameter("give either --steps or --epochs", param_hint="'--steps' / '--epochs'")
    if checkpoints is None and (resume or save_every):
        raise typer.BadParameter("--resume and --save-every require --checkpoints", param_hint="'--checkpoints'")

    from aotpack.cli.checkpoints import Checkpoints
    from aotpack.cli.common import print_json
    from aotpack.cli.loss_curve import check_plot, draw
    from aotpack.cli.signals import terminated_in_order
    from aotpack.cli.training_data import read_samples
    from aotpack.cli.training_loop import run_steps

    check_plot(plot)
    model = load_on(archive, None, threads=threads)
    signature = _signature(model, archive)
    values = _hyperparameters(signature, lr, settings or [])
    samples = read_samples(data, signature, batch, seed)
    total = steps if steps is not None else (epochs or 1) * samples.batches
    context = model.context(seed=seed, check_finite=True)
    saved = None if checkpoints is None else Checkpoints(checkpoints, save_every or samples.batches, keep)
    first = 0 if saved is None else saved.restore(context, resume=resume)
    with terminated_in_order() as interruption:
        result = run_steps(
            context.entry(ENTRY), signature, samples, values, range(first, total), saved, context, interruption
        )
    if plot is not None:
        draw(plot, first, result.losses)
    if as_json:
        print_json(
            {
                "archive": archive,
                "samples": samples.count,
                "batch": samples.batch,
                "first_step": first,
                "steps": total,
                "seconds": result.seconds,
                "samples_per_second": result.samples_per_second,
                "losses": result.losses,
                "checkpoint": None if saved is None else saved.newest,
                "plot": plot,
            }
        )


def _signature(model: Model, archive: Path) -> Signature:
    from aotpack.errors import EntryNotFoundError

    entry = model.manifest.entry(ENTRY)
    if entry is None:
        raise EntryNotFoundError(
            f"{archive} has no entry {ENTRY!r}", hint='capture the model with mode="train_step" (docs/training.md)'
        )
    return entry.signature


def _hyperparameters(signature: Signature, lr: float | None, settings: Sequence[str]) -> Mapping[str, Any]:
    """The values of the numbers that the entry takes, by name."""
    given: dict[str, float] = {} if lr is None else {"lr": lr}
    for text in settings:
        name, _, value = text.partition("=")
        try:
            given[name] = float(value)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE with a number", param_hint="'--set'") from None
    names = [value.name for value in signature.inputs if value.number is not None]
    unknown, missing = [n for n in given if n not in names], [n for n in names if n not in given]
    if unknown:
        takes = f"it takes {', '.join(names)}" if names else "all of them are constants of the archive"
        raise typer.BadParameter(f"the archive does not take {', '.join(unknown)}: {takes}", param_hint="'--set'")
    if missing:
        raise typer.BadParameter(f"the archive also takes {', '.join(missing)}", param_hint="'--set'")
    return given
