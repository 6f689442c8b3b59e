"""`python -m tests.conformance.opinfo`: PyTorch's operator database against archives that run without torch."""

from __future__ import annotations

import argparse
import atexit
import dataclasses
import json
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import aotpack
from tests.conformance.schedule import Entry, Schedule
from tests.conformance.task import BACKWARD, FORWARD, SKIPPED, Platform, Record
from tests.support.torchless import ROOT

DTYPES = ("float32", "int64", "bool", "bfloat16", "float16")
# Cases of an operator that are run by default: halves share their code with float32.
_MOST = {"float32": 100, "int64": 100, "bool": 100, "bfloat16": 6, "float16": 6}
_MOST_OF_OTHERS = 100

Limit = int | Mapping[str, int] | None


def matching(names: re.Pattern[str], dtypes: Sequence[str], mode: str) -> list[tuple[str, str]]:
    """Operators whose names match, with the dtypes that the database has them for."""
    from tests.conformance.samples import operators, supported

    known = sorted(operators().items())
    return [
        (name, dtype)
        for dtype in dtypes
        for name, op in known
        if names.search(name) and supported(op, dtype, backward=mode == BACKWARD)
    ]


def sliced(pairs: Sequence[tuple[str, str]], number: int, of: int) -> list[tuple[str, str]]:
    """Every `of`-th operator of each dtype, from the `number`-th on: operators of all kinds, for names are sorted."""
    positions: Counter[str] = Counter()
    kept = []
    for name, dtype in pairs:
        if positions[dtype] % of == number % of:
            kept.append((name, dtype))
        positions[dtype] += 1
    return kept


def entries(pairs: Iterable[tuple[str, str]], samples: Limit, mode: str) -> Iterator[Entry]:
    """What there is to run of operators; their samples are counted when it is asked for."""
    from tests.conformance.samples import cases_of, chosen, find

    for name, dtype in pairs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cases = cases_of(find(name), dtype, backward=mode == BACKWARD, other_values=False)
        count = sum(case.samples for case in cases)
        limit = samples.get(dtype, _MOST_OF_OTHERS) if isinstance(samples, Mapping) else samples
        entry = Entry(name, dtype, count, len(cases), chosen(len(cases), limit))
        yield dataclasses.replace(entry, alone=not passed(entry, mode))


class Results:
    """Records as JSON lines: what is there is not run again."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.known: dict[tuple[str, str, str], Record] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                try:
                    record = Record.from_json(json.loads(line))
                except (ValueError, TypeError):
                    continue  # A killed run's last line.
                self.known[record.op, record.dtype, record.mode] = record

    def add(self, record: Record) -> None:
        self.known[record.op, record.dtype, record.mode] = record
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(dataclasses.asdict(record)) + "\n")


@lru_cache(maxsize=1)
def recorded() -> dict[str, Any]:
    """docs/operators.json: what the last full run found."""
    path = ROOT / "docs" / "operators.json"
    return json.loads(path.read_text()) if path.exists() else {}


def passed(entry: Entry, mode: str) -> bool:
    """Whether the last full run has nothing against building the entry together with others."""
    return recorded().get(mode, {}).get(entry.dtype, {}).get(entry.op, "passes") in ("passes", "nothing to run")


def run(
    pairs: Sequence[tuple[str, str]],
    samples: Limit,
    mode: str,
    results: Results,
    *,
    jobs: int = 2,
    cache: Path | None = None,
    platform: Platform | None = None,
    quiet: bool = False,
) -> list[Record]:
    """Runs what is not among the results yet; the records of all pairs."""
    records = []

    def left() -> Iterator[Entry]:
        for entry in entries(pairs, samples, mode):
            known = results.known.get((*entry.key, mode))
            if known is not None and (known.chosen, known.cases) == (len(entry.chosen), entry.cases):
                records.append(known)
            else:
                yield entry

    schedule = Schedule(left(), mode, jobs=jobs, cache=cache, platform=platform)
    start = time.time()
    for record in schedule.records():
        records.append(record)
        results.add(record)
        if not quiet:
            show(record, f"[{len(records)}/{len(pairs)} {time.time() - start:.0f}s]")
    if schedule.seconds and not quiet:
        spent = ", ".join(f"{name} {seconds:.0f}" for name, seconds in schedule.seconds.most_common())
        print(f"{time.time() - start:.0f} s; seconds of workers: {spent}", file=sys.stderr)
    return sorted(records, key=lambda record: pairs.index((record.op, record.dtype)))


def show(record: Record, prefix: str = "") -> None:
    """One line, and one for each reason."""
    counts = ", ".join(f"{number} {kind}" for kind, number in record.endings.items())
    print(f"{prefix} {record.op} {record.dtype}: {record.verdict} ({counts})", flush=True)
    for kind, text, number, case in record.reasons:
        if kind != SKIPPED:
            print(f"    {kind} × {number}, e.g. case {case}: {text}", flush=True)


def document(results: Results) -> None:
    """Writes the docs of all results there are, of gradients too."""
    import torch

    from tests.conformance import report

    versions = {"torch": torch.__version__.partition("+")[0], "aotpack": aotpack.__version__}
    report.write(list(results.known.values()), ROOT / "docs", versions, _MOST)


def _platform(target: str, device: str | None) -> Platform:
    if device != "interpreted":
        return Platform(target, device)
    from tests.support.cuda_archives import build_fake_driver

    folder = tempfile.mkdtemp(prefix="aotpack-driver-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Platform(target, "cuda:0", str(build_fake_driver(Path(folder) / "libcuda.so.1")))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.opinfo", description=__doc__)
    parser.add_argument("--ops", default="", metavar="REGEX", help="operators whose names match (re.search); all")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="comma-separated; default: %(default)s")
    parser.add_argument(
        "--samples",
        default="all",
        metavar="N|all",
        help="cases of an operator and dtype, evenly chosen; 'all' stops at 100 (6 of halves), 'every' does not",
    )
    parser.add_argument("--slice", metavar="N/M", help="the N-th of M parts (0 to M-1), stratified")
    parser.add_argument("--jobs", type=int, default=2, help="workers at a time; default: %(default)s")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keeps results there; a killed run goes on from them")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="build cache; by default the user's")
    parser.add_argument("--target", default="native", help="what archives are built for; default: %(default)s")
    parser.add_argument(
        "--device",
        help="where they run, e.g. cuda:0, or `interpreted` without a GPU; by default those for GPUs are built alone",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes all records there")
    parser.add_argument("--doc", action="store_true", help="writes docs/operators.md and .json; after a full run alone")
    parser.add_argument("--backward", action="store_true", help="gradients, by torch.autograd.grad in the function")
    parser.add_argument("--quiet", action="store_true", help="the summary alone")
    options = parser.parse_args(arguments)
    mode = BACKWARD if options.backward else FORWARD
    full = not options.ops and not options.slice and options.samples == "all" and options.dtypes == ",".join(DTYPES)
    platform = _platform(options.target, options.device)
    if options.doc and platform != Platform():
        parser.error("--doc describes the native target: no --target and --device")
    if options.doc and (options.work is None or not (full or options.backward)):
        parser.error("--doc takes --work and a full run: no --ops, --slice, --samples or --dtypes")
    samples: Limit = _MOST
    if options.samples != "all":
        samples = None if options.samples == "every" else int(options.samples)
    pairs = matching(re.compile(options.ops), options.dtypes.split(","), mode)
    if options.slice:
        number, _, of = options.slice.partition("/")
        pairs = sliced(pairs, int(number), int(of))
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
    results = Results(options.work / "results.jsonl" if options.work else None)
    records = run(
        pairs, samples, mode, results, jobs=options.jobs, cache=options.cache, platform=platform, quiet=options.quiet
    )
    if options.json is not None:
        options.json.write_text(json.dumps([dataclasses.asdict(record) for record in records], indent=1) + "\n")
    if options.doc:
        document(results)
    verdicts = Counter((record.dtype, record.verdict.partition(" ")[0]) for record in records)
    for (dtype, verdict), number in sorted(verdicts.items()):
        print(f"{dtype} {verdict}: {number}")
    return 1 if any(record.verdict == "fails" for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
