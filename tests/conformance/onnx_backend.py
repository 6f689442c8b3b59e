"""`python -m tests.conformance.onnx_backend`: onnx's backend test suite against archives that run without torch."""

from __future__ import annotations

import argparse
import json
import queue
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.process import Process
from tests.conformance.task import BUILD_ERROR, CALL_ERROR, CRASH, OK, REFUSED, TIMEOUT, WRONG

TEXT = "text"
_GROUP = 20
_SECONDS, _SECONDS_OF_CASE = 240.0, 20.0
_ORDER = (WRONG, CRASH, CALL_ERROR, TIMEOUT, BUILD_ERROR, REFUSED, TEXT, OK)

Endings = dict[str, tuple[str, str]]


def run(
    names: Sequence[str], *, eager: bool, jobs: int, cache: Path | None, known: Endings, work: Path | None
) -> Endings:
    """How each case ends. Groups whose process dies or takes too long are divided until one case is left."""
    endings: Endings = {name: known[name] for name in names if name in known}
    left = [name for name in names if name not in endings]
    size = 200 if eager else _GROUP
    # Neighbours are of one operator: those that fail take no others with them.
    tasks: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    for i in range(0, len(left), size):
        tasks.put(left[i : i + size])
    lock = threading.Lock()
    start = time.time()

    def done(found: Endings) -> None:
        with lock:
            endings.update(found)
            if work is not None:
                with (work / "onnx.jsonl").open("a") as file:
                    for name, ending in found.items():
                        file.write(json.dumps([name, *ending]) + "\n")
            print(f"[{len(endings)}/{len(names)} {time.time() - start:.0f}s]", file=sys.stderr, flush=True)

    def serve() -> None:
        process: Process | None = None
        while True:
            try:
                group = tasks.get_nowait()
            except queue.Empty:
                break
            process = process or Process("tests.conformance.onnx_worker", [str(cache or "")])
            try:
                done(process.ask("run", group, eager, seconds=_SECONDS + _SECONDS_OF_CASE * len(group)))
                failure = None
            except EOFError:
                failure = (CRASH, "the process that builds crashes")
            except TimeoutError:
                failure = (TIMEOUT, "takes too long")
            if failure is not None or process.full():
                process.close()
                process = None
            if failure is not None and len(group) == 1:
                done({group[0]: failure})
            elif failure is not None:
                tasks.put(group[: len(group) // 2])
                tasks.put(group[len(group) // 2 :])
        if process is not None:
            process.close()

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return endings


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.onnx_backend", description=__doc__)
    parser.add_argument("--cases", default="", metavar="REGEX", help="cases whose names match (re.search); all")
    parser.add_argument("--ops", default="", metavar="REGEX", help="cases with an operator whose name matches")
    parser.add_argument("--eager", action="store_true", help="run the imported modules in torch, without archives")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time; default: %(default)s")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="build cache; by default the user's")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keeps results there; a killed run goes on from them")
    parser.add_argument("--again", action="store_true", help="runs cases again that have not ended well before")
    parser.add_argument("--doc", action="store_true", help="writes the table in docs/onnx.md; after a full run alone")
    parser.add_argument("--quiet", action="store_true", help="the summary alone")
    options = parser.parse_args(arguments)
    from tests.conformance.onnx_cases import cases

    chosen = {
        name: case
        for name, case in cases().items()
        if re.search(options.cases, name)
        and (not options.ops or any(re.search(options.ops, o) for o in case.operators))
    }
    known: Endings = {}
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
        path = options.work / "onnx.jsonl"
        for line in path.read_text().splitlines() if path.exists() else ():
            name, kind, text = json.loads(line)
            known[name] = (kind, text)
        if options.again:
            known = {name: ending for name, ending in known.items() if ending[0] == OK}
    numeric = [name for name, case in chosen.items() if case.is_numeric]
    endings = run(numeric, eager=options.eager, jobs=options.jobs, cache=options.cache, known=known, work=options.work)
    endings |= {
        name: (TEXT, "random" if case.is_random else "strings") for name, case in chosen.items() if not case.is_numeric
    }
    if not options.quiet:
        for name, (kind, text) in sorted(endings.items(), key=lambda item: (_ORDER.index(item[1][0]), item[0])):
            if kind not in (OK, TEXT):
                print(f"{kind}: {name}: {text}")
    if options.doc:
        from tests.conformance.onnx_report import write

        write(chosen, endings)
    counts = Counter(kind for kind, _ in endings.values())
    print(", ".join(f"{kind} {counts[kind]}" for kind in _ORDER if counts[kind]))
    constants = sum(ending == (OK, "constants") for ending in endings.values())
    print(f"{counts[OK]} of {len(numeric)} numeric cases ({100 * counts[OK] / max(len(numeric), 1):.1f} %); ", end="")
    print(f"{constants} of them with inputs that are constants of the archive")
    return 1 if any(counts[kind] for kind in _ORDER[:5]) else 0


if __name__ == "__main__":
    sys.exit(main())
