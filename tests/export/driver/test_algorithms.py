"""Builds that measure algorithms: what was measured is chosen, kept and recorded; elsewhere the cost model decides."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.archive.algorithms import ALGORITHMS_PATH, read_algorithms
from aotpack.building.cache import BuildCache
from aotpack.building.compiler import find_compiler
from aotpack.costs.costs import ModelCosts
from aotpack.costs.shapes import ConvShape, Shape
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.backends.backend import Tools
from aotpack.export.backends.cpu.probe import probe_program
from aotpack.export.driver import algorithms
from aotpack.export.driver.algorithms import Algorithms
from aotpack.export.driver.report import BuildReport
from aotpack.targets import Target
from tests.support.building import assert_close

# The probe compiles once for all tests of this file, and hosts of tests differ.
TARGET = "x86-64-v3"
X = torch.randn(1, 32, 20, 20)

Timed = dict[Shape, dict[str, list[float]]]


class Net(nn.Module):
    """A convolution that may be transformed, and room for its weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(32, 32, 3, padding=1)
        self.head = nn.Linear(32, 12000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


class Probe:
    """In the place of the program that measures."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[int, list[Shape]]] = []
        self.times: Callable[[str, int], list[float]] = lambda algorithm, threads: [1e-3] * 8
        monkeypatch.setattr(algorithms, "probe_program", lambda *_: Path("/none"))
        monkeypatch.setattr(algorithms, "time_shapes", self)

    def __call__(self, _: Path, shapes: Sequence[Shape], *, threads: int, seconds: float, weights: int) -> Timed:
        assert seconds > 0
        assert weights > 0
        self.calls.append((threads, list(shapes)))
        return {shape: {name: self.times(name, threads) for name in shape.algorithms} for shape in shapes}

    def takes(self, **milliseconds: float) -> None:
        self.times = lambda algorithm, _: [1e-3 * milliseconds[algorithm]] * 8


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Probe:
    return Probe(monkeypatch)


@pytest.fixture
def nothing_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What builds of other tests found out is of no use; nor of runs before, whose folders may have the same names."""
    version = uuid.uuid4().hex
    monkeypatch.setattr(algorithms, "kernels_version", lambda: version)


@pytest.fixture
def build(tmp_path: Path, cache_dir: Path, nothing_measured: None) -> Callable[..., tuple[Path, BuildReport]]:
    def run(name: str, **options: Any) -> tuple[Path, BuildReport]:
        path = tmp_path / f"{name}.aotpack"
        given = {"tune_seconds": 1.0, "tune_threads": [1], "cache_dir": cache_dir} | options
        return path, build_archive(
            aot_export(Net().eval(), (X,)), path, targets=[TARGET], options=BuildOptions(**given)
        )

    return run


ALGORITHMS = {9: "direct", 16: "winograd_2x2", 36: "winograd_4x4"}


def algorithm(path: Path) -> str:
    """Of the convolution in the archive, by the elements of a kernel in its weight."""
    with ArchiveReader(path) as reader:
        (elements,) = [c.shape[2] for c in reader.manifest.constants if c.role == "packed" and len(c.shape) == 5]
    return ALGORITHMS[elements]


def test_what_is_measured_faster_is_chosen(build: Callable[..., tuple[Path, BuildReport]], probe: Probe) -> None:
    results = {}
    # Threads as a way to another result in the cache.
    for threads, (name, two, four) in enumerate(
        [("winograd_2x2", 0.5, 0.48), ("winograd_4x4", 0.5, 0.3), ("direct", 1.5, 1.2), ("winograd_4x4", 1.5, 0.8)]
    ):
        probe.takes(direct=1.0, winograd_2x2=two, winograd_4x4=four)
        path, report = build(f"{name}-{threads}", tune_threads=[threads + 1])
        assert algorithm(path) == name
        (measured,) = report.algorithms.measured
        assert measured.chosen == (name,)
        assert measured.nanoseconds == {
            "direct": 1_000_000,
            "winograd_2x2": round(two * 1e6),
            "winograd_4x4": round(four * 1e6),
        }
        with ArchiveReader(path) as reader:
            assert read_algorithms(reader) == (measured,)
        results[name] = aotpack.load(path)(X)
    for result in results.values():
        assert_close(result, Net().eval().double()(X.double()), 5e-6)


def test_a_report_says_what_was_measured(build: Callable[..., tuple[Path, BuildReport]], probe: Probe) -> None:
    probe.takes(direct=1.0, winograd_2x2=0.5, winograd_4x4=9.0)
    _, report = build("one")
    passes = report.passes["forward"]["default"]
    (change,) = next(each.changes for each in passes if each.name == "use-winograd")
    assert change.note.endswith("1000 → 500 µs measured")


def test_a_small_gain_is_not_worth_the_bytes(build: Callable[..., tuple[Path, BuildReport]], probe: Probe) -> None:
    probe.takes(direct=1.0, winograd_2x2=0.93, winograd_4x4=9.0)
    assert algorithm(build("one")[0]) == "direct"


@pytest.mark.parametrize(
    ("direct", "transformed"),
    [
        ([1e-3] * 8, False),
        ([1e-3, 1.08e-3] * 4, True),  # the difference is less than twice the noise: the model decides
        ([1e-3, 1.3e-3] * 4, True),  # too much noise for anything
    ],
)
def test_noise_is_no_measurement(
    build: Callable[..., tuple[Path, BuildReport]], probe: Probe, direct: list[float], *, transformed: bool
) -> None:
    probe.times = lambda algorithm, _: direct if algorithm == "direct" else [1.05e-3] * 8
    assert (algorithm(build("one")[0]) != "direct") == transformed


def test_what_was_measured_is_kept(build: Callable[..., tuple[Path, BuildReport]], probe: Probe) -> None:
    probe.takes(direct=1.0, winograd_2x2=1.5, winograd_4x4=9.0)
    first, _ = build("first")
    probe.takes(direct=1.0, winograd_2x2=0.5, winograd_4x4=9.0)
    second, report = build("second")
    assert [threads for threads, _ in probe.calls] == [1]
    assert first.read_bytes() == second.read_bytes()
    assert len(report.algorithms.measured) == 1
    # With another number of threads it is another question; the answer is the mean of both.
    third, _ = build("third", tune_threads=[1, 2])
    assert [threads for threads, _ in probe.calls] == [1, 2]
    assert algorithm(third) != "direct"


def test_without_measuring_builds_are_the_same_everywhere(
    build: Callable[..., tuple[Path, BuildReport]], probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe.takes(direct=1.0, winograd_2x2=9.0, winograd_4x4=9.0)
    first, report = build("first", tune_seconds=0.0)
    for name in ("another-1-2-3", ""):
        monkeypatch.setattr(algorithms, "host_processor", lambda name=name: name)
        second, _ = build("second", tune_seconds=0.0)
        assert first.read_bytes() == second.read_bytes()
    assert not probe.calls
    assert not report.algorithms.measured
    assert algorithm(first) != "direct"
    with ArchiveReader(first) as reader:
        assert ALGORITHMS_PATH not in [file.path for file in reader.manifest.files]


def test_a_target_of_other_machines_is_predicted(
    build: Callable[..., tuple[Path, BuildReport]], probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe.takes(direct=1.0, winograd_2x2=9.0, winograd_4x4=9.0)
    without, _ = build("without", tune_seconds=0.0)
    monkeypatch.setattr(Target, "host", classmethod(lambda cls: cls("x86-64-v2")))
    path, report = build("path", check=False)
    assert not probe.calls
    assert not report.algorithms.measured
    assert algorithm(path) == algorithm(without)


@pytest.mark.parametrize("error", [OSError("no room"), ValueError("the probe ended with status 3: why")])
def test_a_probe_that_fails_leaves_the_model(
    build: Callable[..., tuple[Path, BuildReport]], probe: Probe, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> Timed:
        raise error

    monkeypatch.setattr(algorithms, "time_shapes", fail)
    path, report = build("one")
    assert algorithm(path) != "direct"
    assert report.algorithms.problem == str(error)


def test_a_build_does_not_wait_for_what_measures(
    build: Callable[..., tuple[Path, BuildReport]], probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()
    monkeypatch.setattr(algorithms, "probe_program", lambda *_: done.wait(60))
    path, report = build("one", tune_seconds=0.2)
    done.set()
    assert not probe.calls
    assert algorithm(path) != "direct"
    assert report.algorithms.problem == algorithms.LATE
    assert report.algorithms.seconds < 5


def test_a_busy_machine_leaves_the_model(build: Callable[..., tuple[Path, BuildReport]], probe: Probe) -> None:
    probe.times = lambda algorithm, _: [1e-3, 2e-3, 3e-3, 4e-3] if algorithm == "direct" else [9e-3] * 4
    path, report = build("one", tune_threads=[2])
    assert algorithm(path) != "direct"
    assert report.algorithms.problem == algorithms.BUSY
    assert not report.algorithms.measured


def test_what_was_disturbed_is_measured_again(
    probe: Probe, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, nothing_measured: None
) -> None:
    first, second = (ConvShape(1, 64, 64, (size, size), (size, size)) for size in (56, 28))
    calls: list[list[Shape]] = []

    def measure(_: Path, shapes: Sequence[Shape], **__: Any) -> Timed:
        calls.append(list(shapes))
        busy = [1e-3, 2e-3, 3e-3, 4e-3]
        return {
            shape: {name: busy if shape == second and len(calls) < 3 else [1e-3] * 4 for name in shape.algorithms}
            for shape in shapes
        }

    monkeypatch.setattr(algorithms, "time_shapes", measure)
    with Algorithms(Tools(BuildCache(cache_dir), find_compiler(None)), (1,), 60.0) as measuring:
        times = measuring.costs([TARGET]).times([first, second], weights=1 << 20)
    assert calls == [[first, second], [second], [second]]
    assert all(each.measured for each in times)
    assert measuring.problem is None


def test_the_program_itself(tmp_path: Path, cache_dir: Path) -> None:
    path = tmp_path / "model.aotpack"
    options = BuildOptions(cache_dir=cache_dir, tune_seconds=1.0, tune_threads=[1])
    probe_program(TARGET, frozenset(), Tools(BuildCache(cache_dir), find_compiler(None)))
    for _ in range(10):
        report = build_archive(aot_export(Net().eval(), (X,)), path, targets=[TARGET], options=options)
        # Other tests beside this one may disturb what it measures; nothing of that is kept.
        if report.algorithms.problem != algorithms.BUSY:
            break
    assert report.algorithms.problem is None
    (measured,) = report.algorithms.measured
    assert measured.numbers == ConvShape(1, 32, 32, (20, 20), (20, 20)).numbers
    assert all(1_000 < each < 100_000_000 for each in measured.nanoseconds.values())
    assert measured.chosen == (algorithm(path),)
    assert_close(aotpack.load(path)(X), Net().eval().double()(X.double()), 5e-6)


def test_predictions_beside_measurements_are_for_a_processor_as_fast(
    probe: Probe, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, nothing_measured: None
) -> None:
    first, second = (ConvShape(1, 64, 64, (size, size), (size, size)) for size in (56, 28))
    likely = [each.seconds for each in ModelCosts([TARGET]).times([first, second], weights=1 << 20)]
    # Three times slower than predicted; there is time for the first alone.
    monkeypatch.setattr(
        algorithms, "time_shapes", lambda *_, **__: {first: {name: [3 * t] * 8 for name, t in likely[0].items()}}
    )
    tools = Tools(BuildCache(cache_dir), find_compiler(None))
    with Algorithms(tools, (1,), 1.0) as measuring:
        times = measuring.costs([TARGET]).times([first, second], weights=1 << 20)
    assert [each.measured for each in times] == [True, False]
    for each, predicted in zip(times, likely, strict=True):
        assert each.seconds == pytest.approx({name: 3 * t for name, t in predicted.items()})
