"""`python -m tests.conformance.exportdb`: the examples of torch.export's database against archives without torch.

Each is exported as the database says, built, and called with its example and, where there are any, its other arguments:
the results are eager's, or the example is refused in plain words.

Private interfaces touched (torch 2.11 to 2.13):
  torch._export.db.examples.all_examples
  torch._export.db.case.ExportCase
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import logging
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from aotpack.errors import AotpackError, CaptureError, UnsupportedOperatorError
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.support.building import assert_close
from tests.support.torchless import Torchless

OK, WRONG, REFUSED, FAILS = "ok", "wrong", "refused", "fails"


@dataclass(frozen=True)
class Record:
    """How an example ended; the reason is an error's class and message."""

    example: str
    ending: str
    reason: str = ""


def examples() -> dict[str, Any]:
    """The database by name."""
    from torch._export.db.examples import all_examples

    return dict(sorted(all_examples().items()))


def run_example(name: str, case: Any, runner: Torchless, *, cache: Path | None = None) -> Record:
    """Builds an example and compares its archive with eager."""
    calls = [(case.example_args, case.example_kwargs)]
    if case.extra_args is not None:
        calls.append((case.extra_args, case.example_kwargs))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "example.aotpack"
        try:
            program = aot_export(
                copy.deepcopy(case.model),
                *copy.deepcopy(calls[0]),
                dynamic_shapes=case.dynamic_shapes,
            )
            build_archive(program, path, options=BuildOptions(check=False, cache_dir=cache))
        except (CaptureError, UnsupportedOperatorError) as error:
            return Record(name, REFUSED, _said(error))
        except Exception as error:
            return Record(name, FAILS, _said(error))
        archive = runner.load(path)
        for args, kwargs in calls:
            given, same = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
            with torch.no_grad():
                expected = copy.deepcopy(case.model)(*given[0], **given[1])
            try:
                found = archive(*same[0], **same[1])
                # What the model writes into its arguments counts too.
                assert_close((found, same), (expected, given), 1e-5)
            except AssertionError as error:
                return Record(name, WRONG, _said(error))
            except (AotpackError, EOFError, BrokenPipeError) as error:
                return Record(name, FAILS, _said(error))
    return Record(name, OK)


def _said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)}"[:400]


def run(names: Iterable[str], *, cache: Path | None = None) -> list[Record]:
    """Runs examples of the database, and reports each."""
    known = examples()
    runner = Torchless({"OMP_WAIT_POLICY": "passive"})
    records = []
    for name in names:
        record = run_example(name, known[name], runner, cache=cache)
        print(record.ending, record.example, record.reason, flush=True)
        records.append(record)
    runner.close()
    return records


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.exportdb", description=__doc__)
    parser.add_argument("--examples", default="", metavar="REGEX", help="examples whose names match (re.search); all")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="build cache; by default the user's")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes all records there")
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    records = run([name for name in examples() if re.search(options.examples, name)], cache=options.cache)
    if options.json is not None:
        options.json.write_text(json.dumps([dataclasses.asdict(record) for record in records], indent=1) + "\n")
    print(*(f"{ending}: {number}" for ending, number in sorted(Counter(r.ending for r in records).items())), sep="\n")
    return 1 if any(record.ending in (WRONG, FAILS) for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
