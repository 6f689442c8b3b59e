"""`python -m tests.conformance.modules`: PyTorch's module database against archives that run without torch.

Each module, in eval and in train mode, in float32: its results are eager's, or it is refused in plain words.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.modules_database import EVAL, TRAIN, modules
from tests.conformance.opinfo import Results, run, sliced
from tests.conformance.task import FORWARD, Record

_DTYPE = "float32"


def matching(names: re.Pattern[str], modes: Sequence[str]) -> list[tuple[str, str]]:
    """Modules in a mode whose names match: (`nn.Linear.eval`, dtype)."""
    return [(name, _DTYPE) for name in sorted(modules()) if names.search(name) and name.rpartition(".")[2] in modes]


def summary(records: Sequence[Record]) -> list[str]:
    """How many modules ended how, by mode."""
    verdicts = Counter((record.op.rpartition(".")[2], record.verdict.partition(" ")[0]) for record in records)
    return [f"{mode} {verdict}: {number}" for (mode, verdict), number in sorted(verdicts.items())]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.modules", description=__doc__)
    parser.add_argument("--modules", default="", metavar="REGEX", help="modules whose names match (re.search); all")
    parser.add_argument("--modes", default=f"{EVAL},{TRAIN}", help="comma-separated; default: %(default)s")
    parser.add_argument("--samples", type=int, metavar="N", help="cases of a module, evenly chosen; by default all")
    parser.add_argument("--slice", metavar="N/M", help="the N-th of M parts (0 to M-1)")
    parser.add_argument("--jobs", type=int, default=2, help="workers at a time; default: %(default)s")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keeps results there; a killed run goes on from them")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="build cache; by default the user's")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes all records there")
    parser.add_argument("--quiet", action="store_true", help="the summary alone")
    options = parser.parse_args(arguments)
    pairs = matching(re.compile(options.modules), options.modes.split(","))
    if options.slice:
        number, _, of = options.slice.partition("/")
        pairs = sliced(pairs, int(number), int(of))
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
    results = Results(options.work / "modules.jsonl" if options.work else None)
    records = run(pairs, options.samples, FORWARD, results, jobs=options.jobs, cache=options.cache, quiet=options.quiet)
    if options.json is not None:
        options.json.write_text(json.dumps([dataclasses.asdict(record) for record in records], indent=1) + "\n")
    print(*summary(records), sep="\n")
    return 1 if any(record.verdict == "fails" for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
