"""The table of docs/onnx.md: how the cases of onnx's backend test suite ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import onnx

from tests.conformance.onnx_cases import KINDS, OnnxCase
from tests.conformance.task import OK
from tests.support.torchless import ROOT

_BEGIN, _END = "<!-- onnx-backend: begin -->", "<!-- onnx-backend: end -->"
_TEXT = "text"


def write(cases: Mapping[str, OnnxCase], endings: Mapping[str, tuple[str, str]]) -> None:
    """Writes the table."""
    path = ROOT / "docs" / "onnx.md"
    before, _, rest = path.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    path.write_text(f"{before}{_BEGIN}\n\n{table(cases, endings)}\n\n{_END}{after}")


def table(cases: Mapping[str, OnnxCase], endings: Mapping[str, tuple[str, str]]) -> str:
    """Counts by kind, then the cases that do not pass, by reason."""
    lines = [
        f"With onnx {onnx.__version__}:",
        "",
        "| | numeric cases | pass | refused | fail | not compared |",
        "|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for kind in KINDS:
        counts = Counter(_column(endings[name][0]) for name, case in cases.items() if case.kind == kind)
        total += counts
        lines.append(_row(kind, counts))
    lines += [_row("all", total), ""]
    constants = sum(ending == (OK, "constants") for ending in endings.values())
    lines += [f"Of those that pass, {constants} have inputs that are constants of the archive.", ""]
    reasons: dict[str, list[str]] = {}
    for name in cases:
        kind, text = endings[name]
        if kind not in (OK, _TEXT):
            reasons.setdefault(f"{kind}: {_general(text)}", []).append(name.removeprefix("test_"))
    lines += ["| Reason | Cases |", "|---|---|"]
    for reason, names in sorted(reasons.items()):
        lines.append(f"| {reason} | {', '.join(f'`{name}`' for name in sorted(names))} |")
    return "\n".join(lines)


def _column(kind: str) -> str:
    return kind if kind in (OK, "refused", _TEXT) else "fail"


def _row(name: str, counts: Mapping[str, int]) -> str:
    numeric = sum(counts.values()) - counts.get(_TEXT, 0)
    columns = (OK, "refused", "fail", _TEXT)
    return f"| {name} | {numeric} | {' | '.join(str(counts.get(column, 0)) for column in columns)} |"


def _general(text: str) -> str:
    """A reason without the name of the node."""
    text = re.sub(r"^node \S+ ", "", text).replace("|", "\\|")
    return re.sub(r"differs by .*", "differs", text)
