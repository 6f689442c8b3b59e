"""What code for GPUs the modules of an archive contain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aotpack.archive import Module

NOTE = "A newer GPU that the machine code does not support compiles the PTX when a model is loaded."


def device_code(modules: Iterable[Module]) -> str:
    """The forms of code for a GPU in the modules for CUDA targets; empty if there are no such modules.

    PTX counts if the kernel with machine code of the same name has it, as the runtime looks it up.
    """
    cuda = [module for module in modules if module.target.startswith("cuda-")]
    if not cuda:
        return ""
    kernels = with_ptx = 0
    for module in cuda:
        names = {asset.name for asset in module.assets}
        binaries = [name for name in names if name.endswith(".cubin")]
        kernels += len(binaries)
        with_ptx += sum(name.removesuffix(".cubin") + ".ptx" in names for name in binaries)
    if not kernels:
        return "none"
    if not with_ptx:
        return "machine code"
    return "machine code, PTX" + ("" if with_ptx == kernels else f" of {with_ptx} of {kernels} kernels")
