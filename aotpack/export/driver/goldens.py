"""Goldens: the example call and eager's answer, as files of an archive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from aotpack.archive import FileSource, Golden, GoldenTensor, Groups
from aotpack.export.ir.program import Program
from aotpack.export.ir.regions import all_nodes
from aotpack.export.tracing.interface import manifest_dtype

# Larger results are sampled: every `step`-th element, so that about this many bytes are kept.
_LIMIT = 1 << 20
_ALIGNMENT = 64

# Greatest allowed error relative to the output's greatest magnitude, by the least precise dtype that takes part.
_TOLERANCE = {
    torch.float8_e5m2: 0.13,
    torch.float8_e5m2fnuz: 0.13,
    torch.float8_e4m3fn: 0.07,
    torch.float8_e4m3fnuz: 0.07,
    torch.bfloat16: 2e-2,
    torch.float16: 5e-3,
}
_DEFAULT_TOLERANCE = 1e-4
# These are for so many results that are rounded to the dtype. Rounding errors of more of them add up as a random walk
# does, in eager's answer as in the archive's; beyond some factor, an error of the archive could hide among them.
_RESULTS = 100
_MOST_GROWTH = 2.5


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor in the order of its memory; it must be dense."""
    if not tensor.numel():
        return memoryview(b"")
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    # Conjugate and negated views have bytes of their own only once they are resolved.
    plain = flat.resolve_conj().resolve_neg().contiguous()
    raw = plain.view(torch.uint8)
    if plain.dtype == torch.bool:
        # A tensor made of foreign bytes may have others than 0 and 1, which compiled code must never see.
        raw = raw.ne(0).view(torch.uint8)
    array: Any = raw.numpy()  # numpy's stubs do not declare the buffer
    return memoryview(array)


def golden_file(
    program: Program, path: str, number: int, *, same: Groups = (), tf32: bool = False
) -> tuple[Golden, FileSource] | None:
    """The golden of a program and the file that holds it, to be file number `number`; None where it has none.

    `same`: the inputs that are one tensor. `tf32`: products of float32 have the precision of float16.
    """
    if program.reference is None:
        return None
    data = bytearray()
    inputs = tuple(_add(data, value, 1, number) for value in program.reference.inputs)
    outputs = []
    for value in program.reference.outputs:
        size = value.numel() * value.element_size()
        outputs.append(_add(data, value, max(1, -(-size // _LIMIT)), number))
    least = _TOLERANCE[torch.float16] if tf32 else 0.0
    golden = Golden(inputs, tuple(outputs), max(least, _tolerance(program)), same)
    return golden, FileSource.from_bytes(path, bytes(data))


def _add(data: bytearray, value: torch.Tensor, step: int, file: int) -> GoldenTensor:
    data.extend(bytes(-len(data) % _ALIGNMENT))
    flat = value.detach().contiguous().reshape(-1)
    sampled = flat if step == 1 else flat[::step].contiguous()
    raw = tensor_bytes(sampled)
    offset = len(data)
    data.extend(raw)
    return GoldenTensor(manifest_dtype(value.dtype), tuple(value.shape), file, offset, len(raw), step)


def _tolerance(program: Program) -> float:
    nodes = _tensor_nodes(program)
    # What is given in float8 is exact; it is results that are rounded.
    dtypes = [
        node.meta["val"].dtype for node in nodes if node.op == "call_function" or node.meta["val"].element_size() > 1
    ]
    found = {dtype: dtypes.count(dtype) for dtype in set(dtypes) & set(_TOLERANCE)}
    return max([_DEFAULT_TOLERANCE, *(_TOLERANCE[dtype] * _growth(count) for dtype, count in found.items())])


def _growth(results: int) -> float:
    return min(_MOST_GROWTH, max(1.0, math.sqrt(results / _RESULTS)))


def _tensor_nodes(program: Program) -> Sequence[torch.fx.Node]:
    return [node for node in all_nodes(program.graph_module) if isinstance(node.meta.get("val"), torch.Tensor)]
