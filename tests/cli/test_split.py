"""`aotpack split`: each stage as an archive of its own; what cannot be split."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import aotpack
from aotpack.archive import read_manifest
from aotpack.archive.split import Estimate, split_archive
from aotpack.archive.stages import ValueSource, read_plan, run_in_order
from aotpack.cli.app import app
from aotpack.errors import BuildError, EntryNotFoundError, MalformedArchiveError, PartitionError
from aotpack.runtime.cpus import process_cpus
from tests.support.staged_archives import two_affine_stages

Archive = Callable[[str], Path]


def test_split(archive: Archive, tmp_path: Path) -> None:
    path = two_affine_stages(archive, tmp_path / "two.aotpack")
    folder = tmp_path / "stages"
    result = CliRunner().invoke(app, ["split", str(path), "-o", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    assert [stage["device"] for stage in json.loads(result.stdout)["stages"]] == ["first", "second"]
    assert sorted(each.name for each in folder.iterdir()) == ["stage0.aotpack", "stage1.aotpack", "stages.json"]
    plan = read_plan(folder)
    assert plan.stages[1].inputs == (ValueSource(0, "hidden"),)
    assert plan.results == (ValueSource(1, plan.outputs[0]),)
    assert plan.last_use(ValueSource(0, "hidden")) == 1
    assert plan.last_use(plan.results[0]) == -1
    for stage in plan.stages:
        result = CliRunner().invoke(app, ["inspect", str(folder / stage.archive)])
        assert result.exit_code == 0, result.output
    assert read_manifest(folder / "stage1.aotpack").devices == ("second",)
    models = [aotpack.load(folder / stage.archive, verify="full") for stage in plan.stages]
    whole = aotpack.load(path)
    for batch in (1, 64):
        x = np.arange(batch * 4, dtype=np.float32).reshape(batch, 4)
        (got,) = run_in_order(plan, [model.run for model in models], [x])
        assert np.array_equal(got, whole(x)[0])


def test_what_cannot_be_split(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match="no entry has several stages"):
        split_archive(archive("affine"), tmp_path / "stages")
    with pytest.raises(PartitionError, match="one stage"):
        split_archive(archive("affine"), tmp_path / "stages", entry="forward")
    path = two_affine_stages(archive, tmp_path / "two.aotpack")
    with pytest.raises(EntryNotFoundError):
        split_archive(path, tmp_path / "stages", entry="other")
    with pytest.raises(ValueError, match="2 stages, got 1 estimates"):
        split_archive(path, tmp_path / "stages", estimates=[Estimate(1, 1.0)])
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(BuildError, match="is not empty"):
        split_archive(path, tmp_path)


def test_a_plan_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_plan(tmp_path)
    good = {"format": "aotpack-stages", "version": 1}
    for text in (
        "{",
        "[]",
        "{}",
        json.dumps({**good, "version": 2}),
        json.dumps({**good, "stages": [{"archive": "../x"}]}),
    ):
        (tmp_path / "stages.json").write_text(text)
        with pytest.raises(MalformedArchiveError):
            read_plan(tmp_path)


def test_bench_of_a_pipeline(archive: Archive, tmp_path: Path) -> None:
    path = two_affine_stages(archive, tmp_path / "two.aotpack")
    arguments = ["bench", str(path), "--dim", "batch=4", "-n", "20", "--pipeline", "--threads", "1"]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["stages"], len(report["workers"]), report["max_in_flight"]) == (2, 2, 4)
    assert report["calls_per_second"] > 0
    cpu = str(process_cpus()[0])
    result = CliRunner().invoke(app, [*arguments, "--cpus", cpu, "--cpus", cpu])
    assert result.exit_code == 0, result.output
    assert "pipeline of 2 stages" in result.stdout
    assert CliRunner().invoke(app, [*arguments, "--cpus", cpu]).exit_code == 1
    assert CliRunner().invoke(app, ["bench", str(path), "--cpus", cpu]).exit_code == 2
