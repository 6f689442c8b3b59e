"""Pipelines from Python: groups of CPUs, results, errors, closing, forks and the end of the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aotpack
from aotpack.errors import CallCancelledError, EntryNotFoundError, InputError, WeightsError
from aotpack.runtime.cpus import numa_nodes, parse_cpus, process_cpus, split_cpus
from aotpack.runtime.pipeline import Worker
from tests.support.staged_archives import two_affine_stages

Archive = Callable[[str], Path]


@pytest.fixture(scope="module")
def path(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_affine_stages(archive, tmp_path_factory.mktemp("stages") / "two.aotpack")


@pytest.fixture(scope="module")
def model(path: Path) -> aotpack.Model:
    return aotpack.load(path)


def rows(batch: int) -> np.ndarray:
    return np.arange(batch * 4, dtype=np.float32).reshape(batch, 4)


def test_results_in_order(model: aotpack.Model) -> None:
    before = process_cpus()
    with model.pipeline(groups=[[before[0]], [before[-1]]], max_in_flight=3) as pipeline:
        assert pipeline.num_stages == 2
        given = rows(5)
        calls = [pipeline.submit(given) for _ in range(2)]
        given[:] = 0  # was copied
        assert np.array_equal(calls[0].result(), model(rows(5)))
        assert calls[0].outputs(0) is calls[0].outputs()
        assert calls[1].done() in (True, False)
        assert np.array_equal(pipeline(rows(1)), model(rows(1)))
        sizes = [1, 64, 2, 3, 7] * 4
        results = list(pipeline.map((rows(size),) for size in sizes))
        assert all(np.array_equal(got, model(rows(size))) for got, size in zip(results, sizes, strict=True))
    assert process_cpus() == before
    assert np.array_equal(calls[1].result(), model(rows(5)))


def test_many_threads_and_copies_of_stages(model: aotpack.Model) -> None:
    cpu = process_cpus()[:1]
    wrong = []
    with model.pipeline(groups=[cpu] * 4) as pipeline:

        def use(batch: int) -> None:
            for _ in range(20):
                if not np.array_equal(pipeline(rows(batch)), model(rows(batch))):
                    wrong.append(batch)

        threads = [threading.Thread(target=use, args=(batch,)) for batch in (1, 2, 3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_errors(model: aotpack.Model) -> None:
    pipeline = model.pipeline()
    for wrong in (rows(65), rows(2).astype("float64"), [1.0]):
        with pytest.raises(InputError):
            pipeline.submit(wrong)
    with pytest.raises(InputError, match="has 1 input, got 0"):
        pipeline.submit_inputs([])
    with pytest.raises(InputError, match="is missing"):
        pipeline.submit()
    assert np.array_equal(pipeline(rows(2)), model(rows(2)))
    assert pipeline.state() == {}
    with pytest.raises(WeightsError):
        pipeline.load_state({"w": rows(1)})
    pipeline.close()
    pipeline.close(cancel=True)
    with pytest.raises(CallCancelledError, match="the pipeline is closed"):
        pipeline.submit(rows(1))


def test_what_cannot_be(model: aotpack.Model) -> None:
    with pytest.raises(InputError, match="stage 1 has no worker"):
        model.pipeline(workers=[Worker(0)])
    with pytest.raises(InputError, match="cannot run on the CPUs 65000"):
        model.pipeline(groups=["65000", [process_cpus()[0]]])
    for groups in ([], ["0"], ["0", "0", "0"], "0-1"):
        with pytest.raises(ValueError, match="one group of CPUs for each"):
            model.pipeline(groups=groups)
    with pytest.raises(ValueError, match="max_in_flight"):
        model.pipeline(max_in_flight=0)
    with pytest.raises(ValueError, match="either"):
        model.pipeline(groups=["0", "0"], workers=[Worker(0)])
    with pytest.raises(EntryNotFoundError):
        model.pipeline("other")


def test_a_fork_and_the_end_of_the_interpreter(path: Path) -> None:
    """With calls under way."""
    code = """
import os, sys, numpy as np, aotpack
from aotpack.errors import InputError
model = aotpack.load(sys.argv[1])
pipeline = model.pipeline()
x = np.ones((64, 4), "float32")
calls = [pipeline.submit(x) for _ in range(3)]
calls[0].result()
pid = os.fork()
if pid == 0:
    for use in (lambda: pipeline.submit(x), pipeline.close, calls[1].result):
        try:
            use()
        except InputError:
            continue
        os._exit(1)
    own = model.pipeline()
    sys.exit(0 if (own(x)[0] == model(x)[0]).all() else 2)
assert os.waitpid(pid, 0)[1] == 0, "the child failed"
for _ in range(50):
    calls.append(pipeline.submit(x))
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_groups_of_cpus(tmp_path: Path) -> None:
    assert parse_cpus("0-3,8") == (0, 1, 2, 3, 8)
    assert parse_cpus([3, 1, 3]) == (1, 3)
    for wrong in ("", "a", "3-1", "0-", "-1", "1,,2", "99999999", [], [-1]):
        with pytest.raises(ValueError, match="group of CPUs"):
            parse_cpus(wrong)
    assert process_cpus() == tuple(sorted(os.sched_getaffinity(0)))
    assert split_cpus(range(8), [1, 1]) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert split_cpus(range(8), [3, 1]) == [(0, 1, 2, 3, 4, 5), (6, 7)]
    assert split_cpus(range(4), [100, 1, 0]) == [(0, 1), (2,), (3,)]
    assert split_cpus([5], [1, 1]) == [(5,), (5,)]
    with pytest.raises(ValueError, match="at least one CPU"):
        split_cpus([], [1])
    cpus = process_cpus()
    for number, text in ((0, f"{cpus[0]},60000"), (1, "50000-50001"), (10, ""), (2, str(cpus[-1]))):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{text}\n")
    assert numa_nodes(tmp_path) == [(cpus[0],), (cpus[-1],)]
    assert numa_nodes(tmp_path / "absent") == [cpus]
