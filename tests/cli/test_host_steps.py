"""`aotpack build` for a GPU: notes on what runs on the host, and `--no-host-steps`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aotpack.cli.app import app
from aotpack.cli.build import Provider
from aotpack.export.backends.cuda.providers import PROVIDERS

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

_MODEL = """
import torch

def model():
    return Top()

class Top(torch.nn.Module):
    # Of more elements than the GPU sorts.
    def forward(self, x):
        return x.topk(3)

def example_inputs():
    return (torch.arange(1200.0).reshape(2, 600),)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(_MODEL)
    return path


def build(source: Path, *options: str) -> Result:
    output = source.with_suffix(".aotpack")
    return CliRunner().invoke(app, ["build", str(source), "-o", str(output), "-t", "cuda-sm_90", *options])


def test_a_note_for_each_call_and_the_report_in_the_archive(source: Path) -> None:
    result = build(source)
    assert result.exit_code == 0, result.output
    assert "note: aten.topk runs on the host, 4872 bytes copied per call: " in result.stderr
    assert "net.py:10" in result.stderr
    archive = str(source.with_suffix(".aotpack"))
    shown = CliRunner().invoke(app, ["inspect", archive, "--kernels", "--passes"]).stdout
    assert "topk on the host" in shown
    assert "1 call on the host" in shown
    passes = json.loads(CliRunner().invoke(app, ["inspect", archive, "--json"]).stdout)["passes"]
    (report,) = [item for item in passes["forward"]["default"] if item["name"] == "host-steps"]
    assert report["changes"][0]["layer"] == "Top"


def test_machines_get_the_calls(source: Path) -> None:
    (step,) = json.loads(build(source, "--json").stdout)["host_steps"]["forward"]["default"]
    assert (step["operator"], step["nbytes"], step["module"]) == ("aten.topk", 4872, "Top")


def test_without_host_steps(source: Path) -> None:
    result = build(source, "--no-host-steps")
    assert result.exit_code == 1
    assert "1 operator is not supported on GPUs" in result.stderr
    assert "return x.topk(3)" in result.stderr
    assert not source.with_suffix(".aotpack").exists()


def test_calls_that_a_provider_may_compute(source: Path) -> None:
    source.write_text(_MODEL.replace("x.topk(3)", "torch.fft.rfft(x), x.topk(3)"))
    result = build(source, "--provider", "cufft", "--provider", "cusolver")
    assert result.exit_code == 0, result.output
    assert re.search(r"note: \S*fft\S* runs on the host unless cufft computes it, \d+ bytes", result.stderr)
    assert "note: aten.topk runs on the host, 4872 bytes" in result.stderr
    archive = str(source.with_suffix(".aotpack"))
    shown = CliRunner().invoke(app, ["inspect", archive, "--kernels"]).stdout
    assert "fft_r2c by cufft, or on the host" in shown
    # The other one has nothing to do in this model.
    assert re.search(r"providers +cufft *\n", shown)
    steps = json.loads(build(source, "--provider", "cufft", "--json").stdout)["host_steps"]["forward"]["default"]
    assert sorted(step["provider"] for step in steps) == ["", "cufft"]


def test_a_provider_that_there_is_not(source: Path) -> None:
    result = build(source, "--provider", "mkl")
    assert result.exit_code == 2
    assert "'mkl' is not one of" in result.stderr


def test_the_providers_of_builds_are_those_of_the_command() -> None:
    assert tuple(provider.value for provider in Provider) == PROVIDERS
