"""`python -m tests.conformance.onnx_files`: `.onnx` files of wheels and exporters against ONNX Runtime.

Each file is built by `aotpack build`. A process without torch calls the archive with random inputs of two sizes and
compares the results with ONNX Runtime's.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.onnx_files.cases import CASES
from tests.conformance.onnx_files.outcome import Outcome, run_case
from tests.conformance.onnx_files.report import write
from tests.conformance.task import OK


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.onnx_files", description=__doc__)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose names match (re.search); all")
    parser.add_argument("--work", type=Path, default=Path("build/onnx-files"), metavar="DIR", help="keeps files there")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="wheels are there; by default WORK/wheels")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="build cache; by default the user's")
    parser.add_argument("--again", action="store_true", help="runs cases again that have ended before")
    parser.add_argument("--doc", action="store_true", help="writes the table in docs/onnx.md from all results in WORK")
    parser.add_argument("--json", action="store_true", help="prints results as JSON lines")
    options = parser.parse_args(arguments)
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    results = work / "results.jsonl"
    known: dict[str, Outcome] = {}
    for line in results.read_text().splitlines() if results.exists() else ():
        outcome = Outcome(**json.loads(line))
        known[outcome.name] = outcome
    chosen = [case for case in CASES if re.search(options.only, case.name)]
    for case in chosen:
        outcome = known.get(case.name)
        if outcome is None or options.again:
            outcome = run_case(
                case, wheels=(options.wheels or work / "wheels").resolve(), work=work, cache=options.cache
            )
            known[case.name] = outcome
            with results.open("a") as file:
                file.write(outcome.as_json() + "\n")
        text = f"{outcome.kind:12} {outcome.error:8.1e} {outcome.build_s:6.1f}s {outcome.name} {outcome.text}"
        print(outcome.as_json() if options.json else text, flush=True)
    counts = Counter(known[case.name].kind for case in chosen)
    print(", ".join(f"{kind} {number}" for kind, number in counts.most_common()), file=sys.stderr)
    if options.doc:
        write(known)
    return 0 if set(counts) <= {OK} else 1


if __name__ == "__main__":
    sys.exit(main())
