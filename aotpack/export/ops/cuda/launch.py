"""Calls of Triton kernels, apart from how they are launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.library import wrap_triton

from aotpack.export.torch_compat.triton.descriptors import launch_with_descriptors


@dataclass(frozen=True)
class Launch:
    """A call of a kernel.

    Attributes:
        kernel: a function with `triton.jit`.
        grid: how many blocks there are in each dim.
        arguments: by the names of the kernel's parameters; with `num_warps` and `num_stages`. `out` is what it writes.
        blocks: of arguments that the kernel takes as descriptors of matrices: rows and columns of the blocks that it
            reads. The elements of a row lie side by side, and the bytes from row to row are a multiple of 16.
    """

    kernel: Any
    grid: tuple[Any, ...]
    arguments: dict[str, Any]
    blocks: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def values(call: Launch) -> dict[str, Any]:
    """What a kernel is called with outside of programs: tensors that it takes as descriptors are described."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    described = {
        name: TensorDescriptor.from_tensor(call.arguments[name], list(block)) for name, block in call.blocks.items()
    }
    return {**call.arguments, **described}


Launcher = Callable[[Launch], Tensor]


def launch(call: Launch) -> Tensor:
    """Launches the kernel; returns its `out`."""
    grid: Any = call.grid
    if call.blocks:
        launch_with_descriptors(call.kernel, grid, call.arguments, call.blocks)
    else:
        wrap_triton(call.kernel)[grid](**call.arguments)
    result: Tensor = call.arguments["out"]
    return result
