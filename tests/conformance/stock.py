"""Whether torch itself can compile a module: torch.export, then TorchInductor's AOT code generation as it comes.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.aot_compile
  torch._inductor.codecache.AotCodeCompiler.compile   replaced: generated code is not compiled
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch


def refusal(module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> str | None:
    """Why torch cannot compile the module for these tensors; None when it can."""
    from torch._inductor import codecache

    def generated(cls: type[Any], /, *args: Any, **kwargs: Any) -> str:
        return "generated"

    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            torch.no_grad(),
            warnings.catch_warnings(),
            mock.patch.object(codecache.AotCodeCompiler, "compile", classmethod(generated)),
        ):
            warnings.simplefilter("ignore")
            exported = torch.export.export(module, tuple(tensors))
            options = {"cpp.vec_isa_ok": True, "compile_threads": 1, "force_disable_caches": True}
            torch._inductor.aot_compile(exported.module(), tuple(tensors), options=options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        logging.disable(level)
    return None
