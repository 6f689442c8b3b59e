"""Renders what bench.run wrote.

python -m bench.report build/bench/results.json [--baseline aoti] [--markdown]
python -m bench.report RESULTS... --roof build/bench/roof.json --performance docs/performance.md \
    --plot docs/images/performance.png
"""

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import engines, peers

HEADINGS = ("build s", "size MB", "start ms", "peak MB", "p50 ms", "p90 ms", "error")
# Which figures have a ratio to the baseline's behind them.
FIGURES = ("build_s", "bytes", "start_s", "peak_rss", "p50_s", "p90_s")
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
SCALES = {"build_s": 1.0, "bytes": 1e-6, "start_s": 1e3, "peak_rss": 1e-6, "p50_s": 1e3, "p90_s": 1e3}


def row_name(model: str, threads: int, most: int) -> str:
    """What a document calls a model with so many threads: its name, and the number where it is not the most."""
    return model if threads == most else f"{model}@{threads}"


def number(value: float, significant: int = 3) -> str:
    """So many significant digits, without an exponent."""
    if value == 0:
        return "0"
    digits = significant - 1
    scale = abs(value)
    while scale >= 10 and digits > 0:
        scale, digits = scale / 10, digits - 1
    while scale < 1 and digits < 6:
        scale, digits = scale * 10, digits + 1
    return f"{value:.{digits}f}"


def cells(figures: dict[str, Any], baseline: dict[str, Any] | None) -> list[str]:
    """One engine's figures, each with its ratio to the baseline's in brackets."""
    row = []
    for key in FIGURES:
        text = number(figures[key] * SCALES[key])
        if baseline is not None and baseline is not figures:
            text += f" ({number(figures[key] / baseline[key], 2)})"
        row.append(text)
    return [*row, f"{figures['max_error']:.1e}"]


def rows(document: dict[str, Any], baseline: str) -> list[tuple[str, str, list[str]]]:
    """(model, engine's title, cells); an engine that failed has one cell that says why."""
    table = []
    for model, results in document["models"].items():
        base = results.get(baseline)
        base = None if base is None or "error" in base else base
        for name, figures in results.items():
            title = engines.get(name).TITLE
            if "error" in figures:
                table.append((model, title, [figures["error"].strip().splitlines()[-1][:60]]))
            else:
                table.append((model, title, cells(figures, base)))
    return table


def caption(document: dict[str, Any], baseline: str) -> str:
    machine, settings = document["machine"], document["settings"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    gpu = f"{machine['gpu']}, " if "gpu" in machine else ""
    return (
        f"{gpu}{machine['cpu']}, {machine['cores']} cores, {settings['threads']} threads, Python {machine['python']}, "
        f"{versions}. In brackets: share of {engines.get(baseline).TITLE}'s figure, smaller is better."
    )


def lines(model: str, results: dict[str, Any]) -> list[str]:
    """A line of text for each engine, with its latency relative to the best of the others."""
    found = []
    for name, figures in results.items():
        if "error" in figures:
            reason = (figures["error"].strip().splitlines() or ["failed"])[-1]
            found.append(f"{model:18} {name:13} {reason[:200]}")
            continue
        best = min((o["p50_s"] for n, o in results.items() if n != name and "p50_s" in o), default=None)
        values = " ".join(f"{key} {number(figures[key] * SCALES[key]):>7}" for key in FIGURES)
        resident = number(figures["rss"] * 1e-6)
        ratio = "" if best is None else f" {figures['p50_s'] / best:.2f} of the best other"
        found.append(f"{model:18} {name:13} {values} rss {resident:>6} error {figures['max_error']:.1e}{ratio}")
    return found


def print_table(document: dict[str, Any], baseline: str) -> None:
    """The table on standard output."""
    table = Table(caption=caption(document, baseline), highlight=False)
    table.add_column("model", no_wrap=True)
    table.add_column("engine", no_wrap=True)
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    previous = None
    for model, title, row in rows(document, baseline):
        if previous not in (None, model):
            table.add_section()
        table.add_row("" if previous == model else model, title, *row, style="bold" if title == "aotpack" else None)
        previous = model
    console = Console(highlight=False)
    # Into a file or a narrow terminal the table is written whole rather than cut.
    Console(highlight=False, width=max(console.width, 150)).print(table)


def markdown(document: dict[str, Any], baseline: str) -> str:
    """The same as a Markdown table."""
    lines = ["| model | engine | " + " | ".join(HEADINGS) + " |", "|" + "---|" * (len(HEADINGS) + 2)]
    for model, title, row in rows(document, baseline):
        row = row + [""] * (len(HEADINGS) - len(row))
        lines.append(f"| {model} | {title} | " + " | ".join(row) + " |")
    return "\n".join([*lines, "", caption(document, baseline)])


def summary(document: dict[str, Any]) -> str:
    """A Markdown table with a line for every model: each figure of aotpack, then the others'."""
    names = [name for name in ("aotpack", "aoti", "onnxruntime") if any(name in m for m in document["models"].values())]
    shown = (
        ("start_s", "first output, ms"),
        ("peak_rss", "peak memory, MB"),
        ("p50_s", "call, ms"),
        ("build_s", "build, s"),
    )
    lines = ["| | " + " | ".join(heading for _, heading in shown) + " |", "|---|" + "---|" * len(shown)]
    for model, results in document["models"].items():
        row = []
        for key, _ in shown:
            figures = [results.get(name, {}).get(key) for name in names]
            row.append(" / ".join("–" if figure is None else number(figure * SCALES[key]) for figure in figures))
        lines.append(f"| {model} | " + " | ".join(row) + " |")
    machine = document["machine"]
    titles = " / ".join(engines.get(name).TITLE for name in names)
    threads = document["settings"]["threads"]
    lines += [
        "",
        f"In each cell: {titles}. {machine['cpu']}, {threads} threads, fp32, torch {machine['versions']['torch']}.",
    ]
    return "\n".join(lines)


def merged(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """One document of several runs on one machine; where they have a model twice, the later engines count."""
    first = documents[0]
    models: dict[str, Any] = {}
    for document in documents:
        if document["machine"] != first["machine"]:
            raise ValueError("the results are of different machines or versions")
        for model, results in document["models"].items():
            models.setdefault(model, {}).update(results)
    return {**first, "models": models}


def performance(document: dict[str, Any], roof: dict[str, Any] | None) -> str:
    """What docs/performance.md has between its markers."""
    machine, settings = document["machine"], document["settings"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    parts = [
        textwrap.fill(
            f"{machine['cpu']}, {machine['cores']} cores, {settings['threads']} threads unless a name ends in @ and "
            f"another number. Python {machine['python']}, {versions}. {document.get('date', 'Date unknown')}.",
            width=100,
        ),
        "### Latency",
        peers.table(document),
        "### Start and build",
        peers.starts(document),
    ]
    if roof is not None:
        parts += ["### Shares of the roof", peers.roof_table(roof)]
    return "\n\n".join(parts)


def replace_table(text: str, table: str) -> str:
    """`text` with what is between the bench markers replaced; ValueError when a marker is missing."""
    before, opening, rest = text.partition(BEGIN)
    _, closing, after = rest.partition(END)
    if not opening or not closing:
        raise ValueError(f"no {BEGIN} … {END} in the file")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def failures(document: dict[str, Any]) -> list[str]:
    """One line for every engine that failed on a model or was further from eager than the tolerance allows.

    An engine that is not installed is no failure."""
    lines = []
    for model, results in document["models"].items():
        for name, figures in results.items():
            error = figures.get("error", "")
            if error and not error.endswith("not installed"):
                lines.append(f"{model}: {name}: {error}")
            elif not error and figures["max_error"] > figures.get("tolerance", document["settings"]["tolerance"]):
                lines.append(f"{model}: {name}: wrong by {figures['max_error']:.1e} of the output's scale")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", type=Path, nargs="+", help="those of several runs count as one")
    parser.add_argument("--baseline", default="aoti")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--into", type=Path, help="a Markdown file with markers; gets the short table")
    parser.add_argument("--performance", type=Path, help="the same, gets tables of aotpack and the best of the others")
    parser.add_argument("--roof", type=Path, help="what bench.roof wrote, for --performance")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="write a plot; needs matplotlib")
    options = parser.parse_args()
    document = merged([json.loads(path.read_text()) for path in options.results])
    if options.plot:
        peers.plot(document, options.plot)
    if options.performance:
        roof = json.loads(options.roof.read_text()) if options.roof else None
        text = options.performance.read_text()
        options.performance.write_text(replace_table(text, performance(document, roof)))
    elif options.plot:
        pass
    elif options.into:
        options.into.write_text(replace_table(options.into.read_text(), summary(document)))
    elif options.markdown:
        print(markdown(document, options.baseline))
    else:
        print_table(document, options.baseline)


if __name__ == "__main__":
    main()
