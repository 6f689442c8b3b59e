"""aotpack's latency against the best of the other engines: table, mean and plot of docs/performance.md."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bench import engines
from bench.precision import precision_of

OURS = ("aotpack", "aotpack_bytes")
COLORS = {"fp32": "#4c78a8", "bf16": "#f58518", "int8": "#54a24b", "w8": "#b279a2", "w4": "#e45756"}


class Row(NamedTuple):
    """p50 in seconds of the engines that ran a model; `best` is the fastest but for aotpack."""

    model: str
    seconds: dict[str, float]
    best: str | None

    @property
    def ratio(self) -> float | None:
        """aotpack's share of the best one's."""
        if self.best is None or "aotpack" not in self.seconds:
            return None
        return self.seconds["aotpack"] / self.seconds[self.best]


def rows(document: dict[str, Any]) -> list[Row]:
    """Those of models that aotpack was measured on; engines with wrong results are left out."""
    found = []
    for model, results in document["models"].items():
        tolerance = document["settings"]["tolerance"]
        seconds = {
            name: figures["p50_s"]
            for name, figures in results.items()
            if "error" not in figures and figures["max_error"] <= figures.get("tolerance", tolerance)
        }
        others = {name: value for name, value in seconds.items() if name not in OURS}
        if "aotpack" in results:
            found.append(Row(model, seconds, min(others, key=lambda name: others[name]) if others else None))
    return found


def mean(ratios: Iterable[float]) -> float:
    """The geometric mean; NaN of none."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def table(document: dict[str, Any]) -> str:
    """A Markdown table of milliseconds, the best of the others in bold, and the ratio to it."""
    from bench.report import number

    found = rows(document)
    names = [name for name in engines.ENGINES if name not in OURS and any(name in row.seconds for row in found)]
    titles = [engines.get(name).TITLE for name in names]
    lines = [
        "| p50, ms | aotpack | " + " | ".join(titles) + " | aotpack / best |",
        "|---|" + "---|" * (len(names) + 2),
    ]
    for row in found:
        cells = [number(row.seconds["aotpack"] * 1e3) if "aotpack" in row.seconds else "failed"]
        for name in names:
            text = number(row.seconds[name] * 1e3) if name in row.seconds else "–"
            cells.append(f"**{text}**" if name == row.best else text)
        cells.append("–" if row.ratio is None else f"{row.ratio:.2f}")
        lines.append(f"| {row.model} | " + " | ".join(cells) + " |")
    ratios = [row.ratio for row in found if row.ratio is not None]
    ahead = sum(ratio <= 1 for ratio in ratios)
    lines += ["", f"Geometric mean of the ratios: {mean(ratios):.2f}. aotpack leads on {ahead} of {len(ratios)}."]
    return "\n".join(lines)


def starts(document: dict[str, Any]) -> str:
    """A Markdown table of seconds to the first output and of builds: aotpack beside ONNX Runtime."""
    from bench.report import number

    lines = [
        "| | start, ms: aotpack | with bytes | ONNX Runtime | ratio | build, s: aotpack | ONNX Runtime | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model, results in document["models"].items():
        ours, theirs, plain = (results.get(name, {}) for name in ("aotpack", "onnxruntime", "aotpack_bytes"))
        if "start_s" not in ours or "start_s" not in theirs or "@" in model:
            continue
        cells = [number(ours["start_s"] * 1e3), number(plain["start_s"] * 1e3) if "start_s" in plain else "–"]
        cells += [number(theirs["start_s"] * 1e3), f"{ours['start_s'] / theirs['start_s']:.2f}"]
        if precision_of(model) == "int8":
            cells += [f"{ours['build_s']:.1f}", "–", "–"]  # its quantizer has made the file
        else:
            ratio = ours["build_s"] / theirs["build_s"]
            cells += [f"{ours['build_s']:.1f}", f"{theirs['build_s']:.1f}", f"{ratio:.1f}"]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def roof_table(roof: dict[str, Any]) -> str:
    """What bench.roof wrote as a Markdown table: for each class of operators share of the time, and of the roof."""
    kinds = list(dict.fromkeys(kind for found in roof["models"].values() for kind in found["classes"]))
    lines = ["| | " + " | ".join(kinds) + " |", "|---|" + "---|" * len(kinds)]
    for model, found in roof["models"].items():
        cells = []
        for kind in kinds:
            row = found["classes"].get(kind)
            if row is None:
                cells.append("–")
                continue
            cells.append(f"{row['share']:.0%}" + ("" if row["roof"] is None else f" (**{row['roof']:.0%}**)"))
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    most = {name: value / 1e9 for name, value in roof["roof"].items() if value}
    peaks = [f"{name} {most[name]:.0f} GFLOP/s" for name in ("fp32", "bf16", "int8") if name in most]
    peaks.append(f"reads {most['reads']:.1f} GB/s")
    return "\n".join([*lines, "", f"Measured with {roof['threads']} threads: {', '.join(peaks)}."])


def plot(document: dict[str, Any], path: Path) -> None:
    """Writes a PNG with a bar for each model; needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = [row for row in rows(document) if row.ratio is not None]
    found.sort(key=lambda row: -(row.ratio or 0))
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.26 * len(found)))
    kinds = [precision_of(row.model.partition("@")[0]) for row in found]
    ratios = [row.ratio or 0.0 for row in found]
    axes.barh(range(len(found)), ratios, color=[COLORS[kind] for kind in kinds])
    for place, row in enumerate(found):
        title = engines.get(row.best).TITLE if row.best else ""
        axes.text(ratios[place], place, f" {ratios[place]:.2f} {title}", va="center", fontsize=7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(found)), [row.model for row in found], fontsize=8)
    axes.set_xlim(0, 1.35 * max([*ratios, 1.0]))
    axes.set_xlabel("p50 of aotpack / p50 of the best other engine (named); smaller is better")
    used = [kind for kind in COLORS if kind in kinds]
    axes.legend([pyplot.Rectangle((0, 0), 1, 1, color=COLORS[kind]) for kind in used], used, fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
