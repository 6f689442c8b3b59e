"""Tunes archives: which ways kernels go fastest on this machine, found by measurement and written into the archive."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aotpack.archive.tuning import Choice, Tuning, read_tunings, replace_tunings
from aotpack.cli.tuning_run import Runs, Site
from aotpack.cli.tuning_search import BUSY, SHORT, Effort, Known, Search, search
from aotpack.errors import AotpackError

if TYPE_CHECKING:
    from aotpack.cli.tuning_cache import TuningCache
    from aotpack.runtime import Model

# Called with (entry, threads) before each search.
Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class Tuned:
    """What was found of an entry with a number of threads. `failure`: why its call failed; None otherwise."""

    entry: str
    threads: int
    inputs_from: str
    search: Search
    reused: int
    failure: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As a JSON-compatible dict."""
        found = self.search.found.values()
        return {
            "entry": self.entry,
            "threads": self.threads,
            "inputs_from": self.inputs_from,
            "sites": len(self.search.sites),
            "measured": len(self.search.measured),
            "reused": self.reused,
            "rounds": self.search.rounds,
            "before_seconds": self.search.before or None,
            "after_seconds": self.search.after or None,
            "saved_seconds": self.search.saved,
            "problem": self.failure or self.search.problem,
            "choices": [
                {
                    "kernel": each.site.kernel,
                    "numbers": list(each.site.numbers),
                    "target": each.site.target,
                    "choice": each.choice,
                    "speedup": each.speedup,
                    "seconds": each.seconds,
                }
                for each in found
            ],
        }


@dataclass(frozen=True)
class TuneReport:
    """What tuning an archive did: `processor`, the result by entry and threads, and whether the archive has changed."""

    processor: str
    results: list[Tuned] = field(default_factory=list)
    changed: bool = False


def tune_archive(
    archive: str | os.PathLike[str],
    *,
    threads: Sequence[int] = (),
    seconds: float,
    entry: str | None = None,
    sizes: Mapping[str, int] | None = None,
    cache: TuningCache | None = None,
    reuse: bool = False,
    progress: Progress | None = None,
) -> TuneReport:
    """Measures the ways of all kernels of an archive's entries that run here, and writes the best into the archive.

    Args:
        archive: the archive, which is replaced by a rename if something is to be written.
        threads: numbers of threads of a call, each of which is tuned for; none: that of a loaded model.
        seconds: about how long to measure in all.
        entry: the only one to tune; None: all that users call.
        sizes: of dims, for generated inputs; empty: the inputs are the example calls'.
        cache: where what is found is kept.
        reuse: take from there what is known, instead of measuring.
        progress: called before each search.

    Raises:
        AotpackError: the archive cannot be loaded here, or the system does not tell its processor.
        OSError: the archive cannot be written.
    """
    from aotpack.archive import ArchiveReader
    from aotpack.runtime import load
    from aotpack.runtime._native import host_processor

    processor = host_processor()
    if not processor:
        raise AotpackError(
            "the system does not tell which processor this is, so that no measurement can be kept for it"
        )
    model = load(archive)
    with ArchiveReader(archive) as reader:
        before = read_tunings(reader)
    names = [entry] if entry else _entries(model)
    counts = list(dict.fromkeys(threads)) or [model.num_threads]
    results = []
    for count in counts:
        for name in names:
            if progress is not None:
                progress(name, count)
            effort = Effort(seconds / (len(counts) * len(names)))
            results.append(_tune_entry(archive, model, name, count, effort, sizes or {}, cache, reuse=reuse))
    tunings = merged(before, results, processor)
    changed = tunings != before and replace_tunings(archive, tunings)
    return TuneReport(processor, results, changed)


def _entries(model: Model) -> list[str]:
    """The entries that users call."""
    weights = model.manifest.weights
    fold = weights.fold.entry if weights is not None and weights.fold is not None else None
    return [entry.name for entry in model.manifest.entries if entry.name != fold]


def _tune_entry(
    archive: str | os.PathLike[str],
    model: Model,
    name: str,
    threads: int,
    effort: Effort,
    sizes: Mapping[str, int],
    cache: TuningCache | None,
    *,
    reuse: bool,
) -> Tuned:
    from aotpack.cli.profiling import call_inputs

    context = model.context(num_threads=threads)
    runner = context.entry(name)
    own = {dim.name for each in model.manifest.entries if each.name == name for dim in each.dims}
    inputs, source = call_inputs(archive, runner, {dim: size for dim, size in sizes.items() if dim in own})
    runs = Runs(context, runner, inputs)
    try:
        runs.find_sites()
        known: dict[int, Known] = cache.find(runs.sites, threads) if cache is not None and reuse else {}
        result = search(runs, effort, known=known, threads=threads)
    except AotpackError as error:
        return Tuned(name, threads, source, Search(problem=BUSY), 0, f"the call fails: {error}")
    if cache is not None and result.problem != BUSY:
        for number in result.measured:
            found = result.found.get(number)
            best = Known(found.choice, round(found.speedup, 4)) if found is not None else Known(0, 1.0)
            cache.store(result.sites[number], threads, best)
    return Tuned(name, threads, source, result, sum(number in known for number in result.sites))


def merged(before: Iterable[Tuning], results: Iterable[Tuned], processor: str) -> tuple[Tuning, ...]:
    """The tunings of an archive after these results. Of sites that were not called now, what is known stays."""
    tunings = {tuning.key: {choice.site: choice for choice in tuning.choices} for tuning in before}
    for result in results:
        if result.failure is not None or (result.search.problem in (BUSY, SHORT) and not result.search.found):
            continue
        for site in result.search.sites.values():
            choices = tunings.setdefault((site.target, processor, result.threads), {})
            found = result.search.found.get(site.number)
            if found is None and result.search.problem == SHORT:
                continue
            number = f"{site.number:016x}"
            choices.pop(number, None)
            if found is not None:
                choices[number] = _choice(site, found.choice, found.speedup)
    ordered = sorted((key, tuple(sorted(choices.values()))) for key, choices in tunings.items())
    return tuple(Tuning(*key, choices) for key, choices in ordered)


def _choice(site: Site, choice: int, speedup: float) -> Choice:
    return Choice(f"{site.number:016x}", choice, site.kernel, site.numbers, round(float(speedup), 4))
