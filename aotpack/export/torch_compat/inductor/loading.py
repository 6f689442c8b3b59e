"""The import of TorchInductor's lowerings, without what only tuning on GPUs needs.

It makes the table of decompositions, for which it goes through all operators of the process, once for each of their
namespaces. And it makes some twenty templates of Triton kernels, and has jinja compile each: a quarter of the import.
Here they are compiled when they are rendered first.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.codegen.common.KernelTemplate._template_from_string   replaced while the lowerings are imported
  torch._export.utils._materialize_cpp_cia_ops   likewise: runs once
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from aotpack.export.torch_compat.patches import replaced


class LateTemplate:
    """A template that is compiled when it is used: it has the attributes of the template that `compile` makes."""

    def __init__(self, source: str, compile: Callable[[str], Any]) -> None:
        self._source, self._compile = source, compile

    @functools.cached_property
    def _template(self) -> Any:
        return self._compile(self._source)

    def __getattr__(self, name: str) -> Any:
        # Never a template's own: copies and pickles ask for these before there is a source.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._template, name)


def load_lowerings() -> None:
    """Imports TorchInductor's lowerings, if nothing has yet."""
    if "torch._inductor.lowering" in sys.modules:
        return
    from torch._export import utils
    from torch._inductor.codegen import common

    compile: Any = common.KernelTemplate._template_from_string
    # Without jinja there are no templates.
    late = functools.partial(LateTemplate, compile=compile) if common.jinja2_env() is not None else compile
    # Nothing defines operators meanwhile.
    once = functools.cache(vars(utils)["_materialize_cpp_cia_ops"])
    with (
        replaced(common.KernelTemplate, "_template_from_string", staticmethod(late)),
        replaced(utils, "_materialize_cpp_cia_ops", once),
    ):
        import torch._inductor.lowering  # noqa: F401
