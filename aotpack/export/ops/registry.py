"""Defines the operators `torch.ops.aotpack.*`.

Each has a reference implementation over plain torch operators, so that a graph with it can be run and compared, and a
fake implementation that states sizes and strides of the result. Generated code calls the C function
`aoti_torch_cpu_<name>`, declared in csrc/module/declare/ and implemented in csrc/module/ops/.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from aotpack.export.torch_compat.operators import OpOverload

# Of activations that kernels take: DType in csrc/kernels/types.h.
KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# By operator, the C function that generated code calls.
C_SHIMS: dict[OpOverload, str] = {}

_library = torch.library.Library("aotpack", "DEF")
# Kernels read any strides, so Inductor need not copy inputs into those of the trace.
_TAGS = (torch.Tag.flexible_layout, torch.Tag.pt2_compliant_tag)


def define(
    schema: str,
    reference: Callable[..., object],
    fake: Callable[..., object],
    *,
    tags: tuple[torch.Tag, ...] = (),
    kernel: bool = True,
) -> OpOverload:
    """A new operator.

    Args:
        schema: name, arguments and results, as torch.library has it: `"pack_linear(Tensor weight) -> Tensor"`. Sizes
            that may be dynamic are `SymInt`.
        reference: computes it by torch's operators; results share no memory with arguments (`unaliased`).
        fake: results of the right sizes, strides and dtype, without values.
        tags: beyond those that all have, e.g. `torch.Tag.nondeterministic_seeded`.
        kernel: whether there is a C function; without, passes replace the operator before code is generated.
    """
    name = schema.partition("(")[0]
    _library.define(schema, tags=(*_TAGS, *tags))
    _library.impl(name, reference, "CompositeExplicitAutograd")
    torch.library.register_fake(f"aotpack::{name}", fake, lib=_library)
    operator: OpOverload = getattr(torch.ops.aotpack, name).default
    if kernel:
        C_SHIMS[operator] = f"aoti_torch_cpu_{name}"
    return operator


def unaliased(result: Tensor, source: Tensor) -> Tensor:
    """An operator's result must not share memory with its arguments; torch's views may."""
    shared = result.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()
    return result.clone() if shared else result
