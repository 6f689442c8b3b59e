"""The table of docs/onnx.md: files by where they are from, and how far results are from ONNX Runtime's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby

import onnxruntime

from tests.conformance.onnx_files.cases import CASES
from tests.conformance.onnx_files.outcome import Outcome
from tests.conformance.task import OK
from tests.support.torchless import ROOT

_BEGIN, _END = "<!-- onnx-files: begin -->", "<!-- onnx-files: end -->"


def write(outcomes: Mapping[str, Outcome]) -> None:
    """Writes the table."""
    path = ROOT / "docs" / "onnx.md"
    before, _, rest = path.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    path.write_text(f"{before}{_BEGIN}\n\n{table(outcomes)}\n\n{_END}{after}")


def table(outcomes: Mapping[str, Outcome]) -> str:
    """A row per file; files of one source with the same ending share a row."""
    ran = [(case, outcomes[case.name]) for case in CASES if case.name in outcomes]
    passed = sum(outcome.kind == OK for _, outcome in ran)
    lines = [
        f"{passed} of {len(ran)} files pass with ONNX Runtime {onnxruntime.__version__}; "
        f"{len(CASES) - len(ran)} more were not run.",
        "The difference is the greatest one, relative to the greatest magnitude of the output.",
        "",
        "| From | Files | Difference | Result |",
        "|---|---|---|---|",
    ]
    for source, group in groupby(ran, key=lambda pair: pair[0].source):
        pairs = list(group)
        names = {case.name: f"`{case.path.rpartition('/')[2] or case.name.partition('/')[2]}`" for case, _ in pairs}
        right = [(case, outcome) for case, outcome in pairs if outcome.kind == OK and not outcome.text]
        if right:
            worst = max(outcome.error for _, outcome in right)
            lines.append(f"| {source} | {', '.join(names[case.name] for case, _ in right)} | {worst:.0e} | pass |")
        for case, outcome in pairs:
            if outcome.kind == OK and outcome.text:
                lines.append(f"| {source} | {names[case.name]} | {outcome.error:.0e} | pass: {outcome.text} |")
            elif outcome.kind != OK:
                text = (
                    re.split(" hint: | at /| at torch/", outcome.text)[0]
                    .removeprefix("error: ")
                    .replace("|", "\\|")[:200]
                )
                lines.append(f"| {source} | {names[case.name]} | | {outcome.kind}: {text} |")
    return "\n".join(lines)
