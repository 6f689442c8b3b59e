"""The Python code of graph modules, generated when it is read or run.

torch.export and its passes call `GraphModule.recompile` after each change of a graph: a sixth of a capture's time, for
code that nothing runs. `_LazyGraphModule` does without, but torch.export makes other modules.

Private interfaces touched (torch 2.11 to 2.13):
  torch.fx.GraphModule.{_code, _lineno_map, _prologue_start}   what `recompile` sets beside the class's `forward`
  torch.fx.GraphModule.{_graph, _in_spec, _out_spec}
  torch.fx.graph._PyTreeCodeGen.pytree_info
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch.fx
from torch.fx.graph import _PyTreeCodeGen

from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patches import applied

_SET = ("_code", "_lineno_map", "_prologue_start")
_PICKLING = ("__reduce__", "__reduce_package__")


@contextlib.contextmanager
def code_generated_late() -> Iterator[None]:
    """While active, graph modules generate their code when it is read, or when they are called."""
    with applied({places.RECOMPILE: _late}):
        yield


def _late(original: Callable[[Any], Any]) -> Callable[[torch.fx.GraphModule], Any]:
    def recompile(self: torch.fx.GraphModule) -> Any:
        if sys._getframe(1).f_code.co_name == "_real_recompile":
            # A lazy module of torch's needs its code now.
            return original(self)
        code = _LateCode(self, original)
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            self._in_spec, self._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
        # Each graph module is of a class of its own. Its instance holds what was generated before the class is asked.
        for name in _SET:
            vars(self).pop(name, None)
            setattr(type(self), name, _Generated(code, name))
        for name in _PICKLING:
            setattr(type(self), name, _with_code(getattr(type(self).__base__, name)))
        type(self).forward = _Generated(code, "forward")  # type: ignore[assignment]
        return code

    return recompile


def _with_code(pickling: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a graph module, whose attributes it takes as they are."""

    @functools.wraps(pickling)
    def reduce(self: torch.fx.GraphModule, *args: Any) -> Any:
        _ = self.code
        return pickling(self, *args)

    return reduce


class _LateCode:
    """What `recompile` returns: torch's PythonCode, generated when an attribute of it is read."""

    def __init__(self, module: torch.fx.GraphModule, recompile: Callable[[Any], Any]) -> None:
        # The class of the module holds this.
        self._module = weakref.ref(module)
        self._recompile = recompile

    def generate(self) -> tuple[torch.fx.GraphModule, Any]:
        """The module with its code, and what torch's `recompile` returned."""
        module = self._module()
        if module is None:
            raise AttributeError("the graph module is gone")
        return module, self._recompile(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.generate()[1], name)


class _Generated:
    """An attribute of a graph module, or its function `forward`, which is there once the code is generated."""

    def __init__(self, code: _LateCode, name: str) -> None:
        self._code = code
        self._name = name

    def __get__(self, instance: torch.fx.GraphModule | None, owner: type[torch.fx.GraphModule]) -> Any:
        module, _ = self._code.generate()
        if self._name != "forward":
            if self._name not in vars(module):
                # One that this version of torch does not set.
                raise AttributeError(self._name)
            return vars(module)[self._name]
        function = vars(type(module))["forward"]
        return function if instance is None else function.__get__(instance, owner)
