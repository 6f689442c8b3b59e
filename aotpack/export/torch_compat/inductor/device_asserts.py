"""Asserts of values inside of kernels: a failure is an error of the call.

TorchInductor writes a throw of std::runtime_error, which would end the process where it leaves a parallel region, and
puts the message between quotes as it is. Here they are checks like those of indices, which kernel_source.py guards.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.codegen.cpp.CppKernel.device_assert_async
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from aotpack.export.torch_compat.patches import replaced


@contextlib.contextmanager
def asserts_checked() -> Iterator[None]:
    """While active, asserts in kernels are written as checks."""
    from torch._inductor.codegen.cpp import CppKernel

    def device_assert_async(self: Any, cond: Any, msg: str) -> None:
        text = json.dumps(str(msg).encode("ascii", "replace").decode())
        self.compute.writeline(f"AOTI_TORCH_CHECK({cond}, {text});")

    with replaced(CppKernel, "device_assert_async", device_assert_async):
        yield
