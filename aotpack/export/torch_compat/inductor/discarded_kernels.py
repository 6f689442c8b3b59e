"""Kernels that TorchInductor generates and throws away: what decides that they are is known before.

Each loop nest is generated as numbers, as vectors, and as the vectors of its tail, also where there is no tail. And
where the loops of several nests might become one, they are generated for that first, and again when they do not fit:
those of each norm, whose mean is a loop over rows, in vectors of rows.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.codegen.cpp.CppScheduling.{codegen_outer_loop_node, kernel_proxy_cls}
  torch._inductor.codegen.cpp.{CppKernelProxy.picked_vec_isa, TilingSelect}
  torch._inductor.codegen.cpp.CppKernel.{itervars, reduction_depth}
  torch._inductor.codegen.cpp.CppVecKernel.tail_size
  torch._inductor.codegen.cpp.CppTile2DKernel.{inner_tail_size, outer_tail_size}
  torch._inductor.codegen.common.DataTypePropagation
  torch._inductor.cpu_vec_isa.pick_vec_isa
  torch._inductor.dependencies.MemoryDep
  torch._inductor.codegen.cpp.OuterLoopFusedSchedulerNode.{check_outer_fusion_loop_level_attr, outer_loop_fusion_depth}
  torch._inductor.scheduler.SchedulerNode.codegen
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from aotpack.export.torch_compat.patches import replaced

# Bodies with these get conversions before their tiling is chosen.
_HALVES = (torch.bfloat16, torch.float16)


@contextlib.contextmanager
def without_discarded_kernels() -> Iterator[None]:
    """While active, the same code is generated without these kernels."""
    from torch._inductor.codegen import cpp
    from torch._inductor.scheduler import SchedulerNode
    from torch._inductor.virtualized import V

    generate: Any = SchedulerNode.codegen
    generate_outer: Any = cpp.CppScheduling.codegen_outer_loop_node

    def codegen(self: Any, index_vars: Any) -> None:
        if not _without_elements(V.kernel):
            generate(self, index_vars)

    def codegen_outer(self: Any, node: Any) -> None:
        if _tiled_alike(node):
            generate_outer(self, node)
            return
        own: Any = self.kernel_proxy_cls

        class Numbers(own):  # type: ignore[misc]
            """Generates no vectors. What the generator remembers of a nest, it does with the numbers."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                self.picked_vec_isa = None

        def refuse(*_: Any) -> bool:
            self.kernel_proxy_cls = own
            return False

        self.kernel_proxy_cls = Numbers
        node.check_outer_fusion_loop_level_attr = refuse
        generate_outer(self, node)

    with (
        replaced(SchedulerNode, "codegen", codegen),
        replaced(cpp.CppScheduling, "codegen_outer_loop_node", codegen_outer),
    ):
        yield


def _without_elements(kernel: Any) -> bool:
    """Whether a kernel is of the tail of loops that have none."""
    # A tile is a kernel of vectors with two tails: its `tail_size` is the one of the loop that is in vectors.
    tile = hasattr(kernel, "outer_tail_size")
    outer = kernel.outer_tail_size if tile else getattr(kernel, "tail_size", None)
    if _is_zero(outer):
        return True
    if not tile or not _is_zero(kernel.inner_tail_size):
        return False
    # The kernel of both tails stores what those rows were reduced to, whether or not columns are left.
    return outer is None or len(kernel.itervars) == kernel.reduction_depth


def _is_zero(size: Any) -> bool:
    return size is not None and bool(size == 0)


def _tiled_alike(node: Any) -> bool:
    """Whether the outer loops of a fused node may all have the same steps; where not, they are not fused."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    if not pick_vec_isa():
        return True
    depth: int = node.outer_loop_fusion_depth
    steps: set[tuple[int, ...]] = set()
    for nest in node.get_outer_nodes():
        found = _steps(nest.get_nodes())
        if found is None:
            return True
        steps.add(found[:depth])
    return len(steps) == 1


def _steps(nodes: Sequence[Any]) -> tuple[int, ...] | None:
    """The steps of the loops around nodes, outermost first; None where this is not known yet."""
    from torch._inductor.codegen.common import DataTypePropagation
    from torch._inductor.codegen.cpp import TilingSelect
    from torch._inductor.dependencies import MemoryDep
    from torch._inductor.virtualized import V

    dependencies = {dependency for node in nodes for dependency in node.read_writes.reads_and_writes()}
    # Others are of orders alone, and of buffers without elements.
    if not all(isinstance(dependency, MemoryDep) for dependency in dependencies):
        return None
    if any(V.graph.get_dtype(dependency.name) in _HALVES for dependency in dependencies):
        return None
    for node in nodes:
        DataTypePropagation.propagate_scheduler_node(node)
    sizes = [node.group[1] for node in nodes]
    group, reduction = max(sizes, key=lambda each: len(each[1]))
    steps = [1] * (len(group) + len(reduction))
    if steps:
        found: Any = TilingSelect().select_tiling([functools.partial(_body, node) for node in nodes], sizes)
        for factor, index in zip(*found[:2], strict=True):
            steps[index] = factor
    return tuple(steps)


def _body(node: Any, *index_vars: Any) -> Any:
    return node._body(*index_vars)
