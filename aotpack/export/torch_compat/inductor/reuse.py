"""Memory is taken over from buffers that own it, not from pieces of a concatenation.

TorchInductor computes the operands of `cat` and `stack` right into the result. An operator that reads such a piece last
may then be computed in its place, and lives in memory that is given away with the concatenation: what it holds is
overwritten while it is still read (gradients of recurrent layers are, for one). So pieces are left alone.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.codegen.wrapper.PythonWrapperCodegen.can_reuse   asked before a buffer is computed in another's place
  torch._inductor.ir.NonOwningLayout                               the layout of a piece
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from aotpack.export.torch_compat.patches import replaced


@contextlib.contextmanager
def pieces_left_alone() -> Iterator[None]:
    """While active, nothing is computed in the place of a piece of another buffer."""
    from torch._inductor import ir
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    original: Any = PythonWrapperCodegen.can_reuse

    @functools.wraps(original)
    def can_reuse(self: Any, input_buffer: Any, output_buffer: Any = None) -> Any:
        # The scheduler asks what may be computed in whose place, with nodes of its own around the buffers. Without an
        # output the question is what may be freed.
        buffer = getattr(input_buffer, "node", input_buffer)
        if output_buffer is not None and isinstance(getattr(buffer, "layout", None), ir.NonOwningLayout):
            return False
        return original(self, input_buffer, output_buffer)

    with replaced(PythonWrapperCodegen, "can_reuse", can_reuse):
        yield
