"""The module database as operators: each module in eval and in train mode, its inputs as samples.

Private interfaces touched (torch 2.11 to 2.13):
  torch.testing._internal.common_modules.{module_db, ModuleInfo, ModuleInput}
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

from aotpack.export.tracing.state import state_put_back

EVAL, TRAIN = "eval", "train"


class Constructed:
    """A module with its own parameters: an argument of a call that is neither tensor nor plain value.

    Equal names are equal calls but for values.
    """

    def __init__(self, module: torch.nn.Module, name: str) -> None:
        self.module = module
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def in_precision(self) -> Constructed:
        """The same module in float64."""
        return Constructed(copy.deepcopy(self.module).double(), self._name)


@dataclass
class Sample:
    """A call of a module."""

    input: Constructed
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


class ModuleInMode:
    """Like an operator of the database: a class of modules in one mode."""

    variant_test_name = ""
    decorators: tuple[Any, ...] = ()
    supports_autograd = False

    def __init__(self, info: Any, mode: str) -> None:
        self.name = f"{info.name}.{mode}"
        self._info = info
        self._mode = mode

    def __call__(self, constructed: Constructed, *args: Any, **kwargs: Any) -> Any:
        module = constructed.module
        if torch.compiler.is_exporting():
            return module(*args, **kwargs)
        with state_put_back(module):
            return module(*args, **kwargs)

    def supported_dtypes(self, device: str) -> set[torch.dtype]:
        """Those that the database has; modules without parameters may have integers alone."""
        return set(self._info.dtypes)

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool = False) -> Iterator[Sample]:
        """The calls of the database, each with a module of its own."""
        training = self._mode == TRAIN
        found = self._info.module_inputs_func(
            self._info, device=device, dtype=dtype, requires_grad=requires_grad, training=training
        )
        for number, case in enumerate(found):
            module = self._info.module_cls(*case.constructor_input.args, **case.constructor_input.kwargs)
            module = module.to(dtype).train(training)
            given = case.forward_input
            if self._info.is_lazy:
                with torch.no_grad():
                    module(*given.args, **given.kwargs)
            yield Sample(Constructed(module, f"{self.name} {number}"), given.args, given.kwargs)


@lru_cache(maxsize=1)
def modules() -> dict[str, ModuleInMode]:
    """By name: `nn.Linear.eval`, `nn.Linear.train`."""
    from torch.testing._internal.common_modules import module_db

    return {op.name: op for info in module_db for op in (ModuleInMode(info, EVAL), ModuleInMode(info, TRAIN))}
