"""The passes that choose kernels for CUDA devices, in the order in which they run, with the reason for each place.

They run after those of `passes/common/pipeline.py`.
"""

from __future__ import annotations

from aotpack.export.passes.cuda.use_gemm import use_gemm
from aotpack.export.passes.runner import Pass

CUDA: tuple[Pass, ...] = (
    # Products have no other kernel.
    Pass(use_gemm, always=True),
)
