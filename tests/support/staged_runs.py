"""Archives of several stages as pipelines and as folders of stages, beside their contexts: the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

import aotpack
from aotpack.archive.split import split_archive
from aotpack.archive.stages import read_plan, run_in_order
from aotpack.runtime.structure import flatten


def check_staged_runs(path: Path, make_args: Callable[[], tuple[Any, ...]], calls: int = 5) -> None:
    """Several calls one after another: state and arguments that are written to count."""
    model = aotpack.load(path, num_threads=1)
    entry = model.manifest.entries[0]
    context = model.context(num_threads=1)
    given = [_arrays(flatten(entry.in_spec, make_args(), {})) for _ in range(calls)]
    wanted = []
    for args in given:
        mine = _copies(args)
        wanted.append((context.run(mine), mine))
    with model.pipeline(max_in_flight=3) as pipeline:
        mine = [_copies(args) for args in given]
        results = [pipeline.submit_inputs(args) for args in mine]
        for call, args, expected in zip(results, mine, wanted, strict=True):
            _same(call.outputs(60), expected[0])
            _same(args, expected[1])
        _same([*pipeline.state().values()], [*context.state().values()])
    if len(entry.variants[0].implementations[0].steps) < 2:
        return
    folder = path.parent / f"{path.stem} split"
    plan = split_archive(path, folder)
    assert read_plan(folder) == plan
    stages = [aotpack.load(folder / stage.archive, verify="full").context(num_threads=1) for stage in plan.stages]
    for args, expected in zip(given, wanted, strict=True):
        mine = _copies(args)
        _same(run_in_order(plan, [stage.run for stage in stages], mine), expected[0])
        _same(mine, expected[1])


def _arrays(args: list[Any]) -> list[Any]:
    return [a.numpy() if isinstance(a, Tensor) else a for a in args]


def _copies(args: list[Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def _same(got: list[Any], wanted: list[Any]) -> None:
    assert len(got) == len(wanted)
    for one, two in zip(got, wanted, strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(two), equal_nan=True), (one, two)
        assert np.asarray(one).dtype == np.asarray(two).dtype
