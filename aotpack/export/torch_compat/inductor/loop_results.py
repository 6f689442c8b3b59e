"""Results of loops, whose memory later kernels would reuse though it is not theirs.

What a loop writes into, as `scan` and `map` do row by row, is two buffers for TorchInductor, the one that is written to
and what it is after the loop, in one memory. Each would be reused by a later kernel, the second one under a name that
is declared twice. Reusing the first is enough. What else a loop returns is, after a loop without steps, what it was
given: an input of the model or a constant, which nothing may write to.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.codegen.cpp_wrapper_cpu.CppWrapperCpu.codegen_while_loop   replaced while generating
  torch._inductor.ir.WhileLoop.mutation_outputs
  torch._inductor.virtualized.V.graph.never_reuse_buffers
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from aotpack.export.torch_compat.patches import replaced


@contextlib.contextmanager
def loop_results_reused_once() -> Iterator[None]:
    """While active, the memory of results of loops is reused by one kernel at a time, and only if it is their own."""
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
    from torch._inductor.virtualized import V

    original: Any = CppWrapperCpu.codegen_while_loop

    def codegen_while_loop(self: Any, while_loop: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = while_loop.outputs
        results = [*while_loop.mutation_outputs, *outputs]
        V.graph.never_reuse_buffers.update(output.get_name() for output in results)
        if not hasattr(CppWrapperCpu, "_get_while_loop_carried_output_names"):
            while_loop.outputs = _carried(while_loop)
        try:
            return original(self, while_loop, *args, **kwargs)
        finally:
            while_loop.outputs = outputs

    with replaced(CppWrapperCpu, "codegen_while_loop", codegen_while_loop):
        yield


def _carried(while_loop: Any) -> list[Any]:
    """The output for each value that a loop carries: torch before 2.13 takes the others for them where the loop writes
    into some.
    """
    written = {name: output for output in while_loop.mutation_outputs for name in output.get_mutation_names()}
    others = iter(while_loop.outputs)
    found = []
    for value in while_loop.carried_inputs:
        output = written.get(value.get_name())
        while output is not None and output.get_name() in written:
            output = written[output.get_name()]
        found.append(next(others) if output is None else output)
    return found
