"""The losses of a training run as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import typer


def check_plot(path: Path | None) -> None:
    """Before the run: whether a picture can be drawn at all."""
    if path is not None and find_spec("matplotlib") is None:
        raise typer.BadParameter("needs matplotlib: pip install 'aotpack[plot]'", param_hint="'--plot'")


def draw(path: Path, first: int, losses: Sequence[float]) -> None:
    """Draws the loss of each step from `first` on."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(first + 1, first + 1 + len(losses)), losses, linewidth=1)
    axes.set(xlabel="step", ylabel="loss")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
