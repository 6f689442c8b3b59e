"""Names of ranges for the profiler, which a trace below autograd takes for operators. Steps of optimizers have them."""

from __future__ import annotations

from typing import Any

from torch.autograd.profiler import record_function

from aotpack.export.overrides.table import replaces


@replaces(record_function, "__enter__")
def _entered(self: record_function) -> record_function:
    return self


@replaces(record_function, "__exit__")
def _left(self: record_function, *exception: Any) -> None:
    return None
