"""Measured times: `bench --per-kernel`, `inspect --profile`, `--trace`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import aotpack
from aotpack.archive import read_manifest
from aotpack.cli.app import app
from aotpack.errors import InputError

Archive = Callable[[str], Path]


def invoke(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def measured(described_archives: Path) -> dict[str, Any]:
    path = described_archives / "described.aotpack"
    result = invoke("bench", path, "--per-kernel", "--json", "-n", 50, "--threads", 1)
    assert result.exit_code == 0, result.output
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_every_kernel_of_the_call_is_measured(measured: dict[str, Any], described_archives: Path) -> None:
    manifest = read_manifest(described_archives / "described.aotpack")
    kernels = manifest.entries[0].variants[0].implementations[0].steps[0].module.kernels
    names = [(each["kernel"], each["name"]) for each in measured["kernels"]]
    assert names == [(index, kernels[index].name) for index, _ in names]
    # One of the two branches runs.
    assert len(kernels) - len(names) == 1
    assert all(each["count"] == 1 and each["seconds"] >= 0 for each in measured["kernels"])
    assert measured["calls"] == 50
    inside = sum(each["seconds"] for each in measured["kernels"])
    (step,) = measured["steps"]
    assert 0 < inside <= step["seconds"] * 1.05
    assert step["seconds"] <= measured["seconds"] * 1.05
    assert sum(each["share"] for each in measured["kernels"]) == pytest.approx(inside / measured["seconds"])


def test_latencies_are_the_times_of_kernels_by_node(measured: dict[str, Any]) -> None:
    inside = sum(each["seconds"] for each in measured["kernels"] if each["nodes"])
    assert sum(measured["latencies"].values()) == pytest.approx(inside)
    # What a branch computes counts for the call of the branch.
    assert not any(name.startswith(("true_graph", "false_graph")) for name in measured["latencies"])
    branch = sum(
        each["seconds"] * sum("graph_0." in node for node in each["nodes"]) / len(each["nodes"])
        for each in measured["kernels"]
    )
    assert branch > 0
    assert measured["latencies"]["cond"] >= branch * 0.999


def test_the_table(described_archives: Path) -> None:
    result = invoke("bench", described_archives / "staged.aotpack", "--per-kernel", "-n", 20, "--dim", "batch=3")
    assert result.exit_code == 0, result.output
    assert "inputs (generated): x[3, 8]" in result.stdout
    assert "20 calls with hooks" in result.stdout
    assert [line.split()[:2] for line in result.stdout.splitlines() if line[:2] in ("1 ", "2 ")] == [
        ["1", "near"],
        ["2", "far"],
    ]


def test_archives_without_hooks_say_how_to_get_them(archive: Archive, tmp_path: Path) -> None:
    result = invoke("bench", archive("affine"), "--per-kernel", "-n", 3)
    assert result.exit_code == 1
    assert "do not record the times of their kernels" in result.stderr
    assert "--profile" in result.stderr
    trace = tmp_path / "trace.json"
    result = invoke("inspect", archive("affine"), "--trace", trace, "--html", tmp_path / "a.html", "--profile")
    assert result.exit_code == 0, result.output
    assert "the trace has steps only" in result.stderr
    events = json.loads(trace.read_text())["traceEvents"]
    assert [event["cat"] for event in events if event["ph"] == "X"] == ["call", "step"]
    assert "only steps have times" in (tmp_path / "a.html").read_text()


def test_the_trace_is_valid(described_archives: Path, tmp_path: Path) -> None:
    """Complete events with times, on rows with names; parts lie within what they are parts of."""
    path = tmp_path / "trace.json"
    result = invoke("inspect", described_archives / "staged.aotpack", "--trace", path)
    assert result.exit_code == 0, result.output
    trace = json.loads(path.read_text())
    rows = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert rows == {1: "call", 2: "steps", 3: "kernels"}
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert all(set(event) == {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"} for event in events)
    assert [event["name"] for event in events if event["cat"] == "step"] == ["step 1 on near", "step 2 on far"]
    (call,) = [event for event in events if event["cat"] == "call"]
    for event in events:
        assert event["pid"] == 1
        assert event["tid"] in rows
        assert call["ts"] <= event["ts"]
        assert event["ts"] + event["dur"] <= call["ts"] + call["dur"] + 1e-6
    kernels = [event for event in events if event["cat"] == "kernel"]
    assert {event["args"]["step"] for event in kernels} == {1, 2}
    assert kernels == sorted(kernels, key=lambda event: event["ts"])
    for before, after in itertools.pairwise(kernels):
        assert before["ts"] + before["dur"] <= after["ts"] + 1e-6


def test_options_of_the_profiled_call_need_a_profile(archive: Archive) -> None:
    result = invoke("inspect", archive("affine"), "--threads", 2)
    assert result.exit_code == 2
    assert "--profile" in result.stderr


def test_profiles_of_a_context(described_archives: Path) -> None:
    import numpy as np

    model = aotpack.load(described_archives / "staged.aotpack")
    context = model.context(num_threads=1)
    x = np.ones((2, 8), np.float32)
    context(x)
    assert context.profile() == []
    context.set_profiling()
    context(x)
    events = context.profile()
    assert [(event.step, event.kernel) for event in events] == [
        (None, None),
        (0, None),
        (0, 0),
        (1, None),
        (1, 0),
        (1, 1),
    ]
    assert all(event.end >= event.begin >= 0 for event in events)
    assert all(event.seconds == round(event.end - event.begin, 9) for event in events)
    with pytest.raises(InputError):
        context(np.ones((17, 8), np.float32))
    assert context.profile() == []
    context(x)
    assert len(context.profile()) == len(events)
    context.set_profiling(False)
    context(x)
    assert context.profile() == []


def test_results_are_the_same_with_hooks(described_archives: Path, tmp_path: Path, cache_dir: Path) -> None:
    import numpy as np

    from tests.support.described import build_staged

    build_staged(tmp_path / "plain.aotpack", cache_dir, profile=False)
    plain = aotpack.load(tmp_path / "plain.aotpack")
    assert (
        "mark"
        not in read_manifest(tmp_path / "plain.aotpack")
        .entries[0]
        .variants[0]
        .implementations[0]
        .steps[0]
        .module.imports
    )
    x = np.random.default_rng(0).standard_normal((5, 8), np.float32)
    hooked = aotpack.load(described_archives / "staged.aotpack")
    assert np.array_equal(plain(x), hooked(x))


def test_measured_latencies_feed_the_partitioner(described_archives: Path) -> None:
    import torch

    from aotpack.export import Device, aot_export, partition
    from tests.support.described import B, Staged

    result = invoke("bench", described_archives / "staged.aotpack", "--per-kernel", "--json", "-n", 20)
    latencies = json.loads(result.stdout)["latencies"]
    program = aot_export(Staged().eval(), (torch.randn(4, 8),), dynamic_shapes={"x": {0: B}})
    stages = partition(program, [Device("a", 1 << 20)], latencies=latencies)
    assert latencies.keys() == stages.nodes.keys()
    assert stages.seconds == pytest.approx(sum(latencies.values()))
    assert stages.seconds > 0
