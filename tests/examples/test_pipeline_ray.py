"""examples/pipeline_ray: one actor a stage returns what the archive returns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aotpack.archive.split import split_archive
from tests.support.staged_archives import two_affine_stages

pytestmark = pytest.mark.examples

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline_ray" / "pipeline.py"


def test_stages_on_ray(archive, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("ray", reason="ray is not installed: pip install 'aotpack[ray]'")
    path = two_affine_stages(archive, tmp_path / "stages.aotpack")
    folder = tmp_path / "stages"
    split_archive(path, folder)
    command = [sys.executable, str(EXAMPLE), str(folder), "--whole", str(path), "--requests", "20", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["equal"]
    assert report["requests"] == 20
