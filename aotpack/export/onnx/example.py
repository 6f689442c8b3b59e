"""Example calls of ONNX models, from what the files declare of their inputs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import torch

from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.base.errors import OnnxError
from aotpack.export.onnx.base.graph import Graph, type_text
from aotpack.export.onnx.module import OnnxModule

# Sizes of the example call, for dims in the order in which they occur. They differ, so that none is taken for another.
_SIZES = (2, 5, 7, 11, 13, 17, 19, 23)
_IMAGE_SIZES = (64, 96, 80, 48)
# Of an input.
_MOST_BYTES = 1 << 30


def example_call(graph: Graph, names: Sequence[str], sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
    """Random tensors for inputs, of the types and sizes that the file declares.

    Args:
        graph: the graph.
        names: the inputs.
        sizes: of symbolic dims; others get numbers that differ.

    Raises:
        OnnxError: the file does not say what an input is, or declares one that no memory holds.
    """
    generator = torch.Generator().manual_seed(0)
    chosen: dict[str, int] = dict(sizes)
    plain, images = list(_SIZES), list(_IMAGE_SIZES)
    made = []
    for name in names:
        proto = graph.types.get(name)
        if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
            text = "no type" if proto is None else f"the type {type_text(proto)} without sizes"
            raise OnnxError(f"the input {name!r} has {text} in the file", hint="pass an example call as `args`")
        shape = []
        dims = proto.tensor_type.shape.dim
        for axis, dim in enumerate(dims):
            if not is_symbolic(dim):
                shape.append(dim.dim_value)
                continue
            key = dim.dim_param if re.search(r"\w", dim.dim_param) else f"{name}_{axis}"
            if key not in chosen:
                pool = images if len(dims) >= 4 and axis >= 2 else plain
                chosen[key] = pool.pop(0) if pool else 29 + len(chosen)
            shape.append(chosen[key])
        dtype = dtypes.torch_dtype(proto.tensor_type.elem_type)
        refusal = OnnxError(
            f"the input {name!r} is {type_text(proto)} in the file, of which no example can be made",
            hint="pass an example call as `args`",
        )
        if any(size < 0 for size in shape) or math.prod(max(size, 1) for size in shape) * dtype.itemsize > _MOST_BYTES:
            raise refusal
        try:
            made.append(_random(shape, dtype, generator))
        except RuntimeError as error:
            # torch's allocator has no class of its own for errors.
            raise refusal from error
    return tuple(made)


def is_symbolic(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether a dim has no size in the file."""
    return not dim.HasField("dim_value")


def _random(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(list(shape), generator=generator).to(dtype)
    # Indices and masks: valid for nearly all that reads them.
    return torch.randint(0, 2, list(shape), generator=generator).to(dtype)


def symbolic_dims(graph: Graph, module: OnnxModule, args: Sequence[Any]) -> dict[str, dict[int, str]]:
    """The symbolic dims of inputs, by parameter and axis."""
    shapes: dict[str, dict[int, str]] = {}
    for name, parameter, value in zip(module.inputs, module.parameter_names, args, strict=True):
        proto = graph.types.get(name)
        if proto is None or not isinstance(value, torch.Tensor) or not proto.HasField("tensor_type"):
            continue
        axes = {}
        for axis, dim in enumerate(proto.tensor_type.shape.dim):
            if is_symbolic(dim):
                axes[axis] = _dim_name(dim) or f"{parameter}_{axis}"
        if axes:
            shapes[parameter] = axes
    return shapes


def _dim_name(dim: onnx.TensorShapeProto.Dimension) -> str:
    """The name as that of a dim; "" for formulas and "?", which stand for sizes of their own."""
    name = dim.dim_param
    if re.search(r"[-+*/() ]", name) or not re.search(r"\w", name):
        return ""
    return re.sub(r"\W", "_", name) if name and not name[0].isdigit() else ""
