"""The tool that runs the module database: a part of it, the same in every run, and that it notices what it must.

`AOTPACK_SLICE=n` chooses another part.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conformance.modules import matching, summary
from tests.conformance.modules_database import EVAL, TRAIN, ModuleInMode, modules
from tests.conformance.opinfo import Results, run, sliced
from tests.conformance.task import FORWARD, OK, WRONG, Part, Task
from tests.conformance.worker import Worker

pytestmark = pytest.mark.torch

# So many parts are there, and so many cases of each module are run.
_PARTS, _CASES = 24, 1


class Moving(torch.nn.Module):
    """Counts its calls in a buffer, and returns the count."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), by))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        wrong = 1 if torch.compiler.is_exporting() and self.training else 0
        return x * self.weight + self.calls + wrong


class Info:
    """Like an entry of the database."""

    name = "nn.Moving"
    module_cls = Moving
    dtypes = (torch.float32,)
    is_lazy = False

    @staticmethod
    def module_inputs_func(info: Any, device: str, dtype: torch.dtype, requires_grad: bool, training: bool) -> Any:
        from torch.testing._internal.common_modules import FunctionInput, ModuleInput

        return [
            ModuleInput(FunctionInput(2.0), FunctionInput(torch.randn(3))),
            ModuleInput(FunctionInput(by=4.0), FunctionInput(x=torch.randn(2, 3))),
        ]


def test_every_module_is_there_in_both_modes() -> None:
    names = set(modules())
    assert names >= {"nn.Linear.eval", "nn.Linear.train", "nn.TransformerEncoder.eval", "nn.LSTM.train"}
    assert len(names) > 200
    assert [name for name, _ in matching(re.compile(r"^nn\.Linear\."), (EVAL, TRAIN))] == [
        "nn.Linear.eval",
        "nn.Linear.train",
    ]


def test_a_module_has_its_own_state_and_a_wrong_one_is_found(tmp_path: Path, cache_dir: Path) -> None:
    """Each call starts from the module's own buffer. In train mode this one is traced otherwise than it runs."""
    found: dict[str, ModuleInMode] = {f"nn.Moving.{mode}": ModuleInMode(Info, mode) for mode in (EVAL, TRAIN)}
    worker = Worker(tmp_path, find=found.__getitem__, cache=cache_dir)
    parts = tuple(Part(name, "float32", (0, 1)) for name in found)
    outcome = worker.run(Task(parts, FORWARD))
    assert outcome.failure is None
    kinds = {name: ending.kind for name, ending in outcome.endings.items()}
    for case in (0, 1):
        assert kinds["nn.Moving.train", "float32", case] == WRONG
        assert kinds["nn.Moving.eval", "float32", case] == OK


@pytest.mark.slow
def test_slice(cache_dir: Path) -> None:
    part = int(os.environ.get("AOTPACK_SLICE", "0"))
    chosen = sliced(matching(re.compile(""), (EVAL, TRAIN)), part, _PARTS)
    records = run(chosen, _CASES, FORWARD, Results(None), cache=cache_dir)
    assert len(records) == len(chosen)
    problems = [f"{r.op}: {r.verdict} {r.reasons}" for r in records if r.verdict == "fails"]
    assert not problems, "\n".join([*summary(records), *problems])
