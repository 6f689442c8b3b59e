"""The tool that runs torch.export's examples: some of them, and that it notices what it must."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._export.db.case import ExportCase

from tests.conformance.exportdb import examples, run, run_example
from tests.support.torchless import Torchless

pytestmark = pytest.mark.torch


class Otherwise(torch.nn.Module):
    """Is traced otherwise than it runs, from a certain size on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting():
            return x + torch.arange(x.shape[0]).ge(3)
        return x * 1


class Inside(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x


@pytest.fixture
def runner() -> Iterator[Torchless]:
    process = Torchless()
    yield process
    process.close()


def test_endings(runner: Torchless, cache_dir: Path) -> None:
    shapes = {"x": {0: torch.export.Dim("n", min=2, max=9)}}

    def case(model: torch.nn.Module) -> ExportCase:
        return ExportCase((torch.ones(3),), "a case", model, "case", extra_args=(torch.ones(4),), dynamic_shapes=shapes)

    wrong = run_example("otherwise", case(Otherwise()), runner, cache=cache_dir)
    assert (wrong.ending, wrong.reason.partition(":")[0]) == ("wrong", "AssertionError")
    refused = run_example("inside", case(Inside()), runner, cache=cache_dir)
    assert (refused.ending, refused.reason.partition(":")[0]) == ("refused", "CaptureError")


def test_some_examples(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["dynamic_shape_constructor", "optional_input", "user_input_mutation"]
    assert set(names) < set(examples())
    records = run(names, cache=cache_dir)
    assert [record.ending for record in records] == ["ok"] * 3
    assert capsys.readouterr().out.splitlines()[0] == "ok dynamic_shape_constructor "
