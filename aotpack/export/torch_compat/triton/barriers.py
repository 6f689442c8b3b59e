"""Barriers of the copy engine that are ready for every thread of a warp.

Triton 3.7 makes a barrier in the thread that `elect.sync` chooses, and sets it in the first thread of the block,
without a barrier of the warp between them. On an H100 both are instructions of one warp, in this order; PTX's memory
model asks for more, and racecheck warns of it.

Private interfaces touched (triton 3.6 and 3.7):
  triton.backends.nvidia.compiler.CUDABackend.make_ptx   returns the text of one kernel
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Any

from aotpack.export.torch_compat.patches import applied

_BARRIER = "bar.warp.sync 0xffffffff;"
# Threads of a warp come here together: Triton has whole warps make barriers, with one of their threads.
_INIT = re.compile(r"^.*\bmbarrier\.init\.[^;]*;\n", re.MULTILINE)


def barriers_in_order() -> AbstractContextManager[None]:
    """While active, a warp's threads wait for each barrier that one of them makes."""

    def ordered(original: Any) -> Any:
        def make_ptx(self: Any, src: Any, metadata: Any, opt: Any, capability: int) -> str:
            return with_order(original(self, src, metadata, opt, capability))

        return make_ptx

    return applied({"triton.backends.nvidia.compiler:CUDABackend.make_ptx": ordered})


def with_order(ptx: str) -> str:
    """The text of a kernel with a barrier of the warp behind each barrier that it makes in shared memory."""
    return _INIT.sub(lambda found: f"{found[0]}\t{_BARRIER}\n", ptx)
