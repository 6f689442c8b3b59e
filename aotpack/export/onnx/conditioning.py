"""Whether rounding decides the results of a default example call.

Example calls that are made up can be far from what a model was trained on: a normalization of nearly equal elements
divides differences that are rounding alone. Then two right implementations disagree, and the self-check of a build
would reject a right archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from aotpack.export.ir.program import Program
from aotpack.export.onnx.module import OnnxModule
from aotpack.export.tracing import eager

# Changes of parameters, in units in the last place: as much as sums in another order change.
_UNITS = 4
# Beyond this, results that differ from eager's are not wrong; it is the tolerance of the self-check.
_MOST = 1e-4
# Parameters that are changed, in bytes: copies of them are kept.
_MOST_BYTES = 64 << 20


def with_sensitivity(program: Program, module: OnnxModule, args: tuple[Any, ...]) -> Program:
    """The program. Where rounding decides the results of its example call, the call leaves them open."""
    if program.reference is None:
        return program
    change = sensitivity(module, args, program.reference.outputs)
    if change <= _MOST:
        return program
    reason = f"random inputs: changes of weights by rounding change an output by {change:.0e} of its greatest magnitude"
    return replace(program, reference=replace(program.reference, open=(*program.reference.open, reason)))


def sensitivity(module: OnnxModule, args: tuple[Any, ...], answer: Sequence[torch.Tensor]) -> float:
    """How much an output changes, relative to its greatest magnitude, when parameters change by a few units in the
    last place. 0 where results are not numbers that can be compared.

    `answer`: what the module returned for `args`, flat.
    """
    with _changed(module):
        results = eager.again(module, args, {})
    after = _floats(results.values())
    # Elements of lists are not compared.
    whole = all(isinstance(value, torch.Tensor) for value in results.values())
    before = _floats(answer if whole else eager.again(module, args, {}).values())
    found = 0.0
    for a, b in zip(before, after, strict=False):
        if a.shape != b.shape or not a.numel():
            continue
        scale = a.nan_to_num(0, 0, 0).abs().max().item()
        difference = (a - b).nan_to_num(0, 0, 0).abs().max().item()
        found = max(found, difference / scale if scale else 0.0)
    return found


@contextmanager
def _changed(module: OnnxModule) -> Iterator[None]:
    """While active, elements of parameters differ from their own by rounding."""
    generator = torch.Generator().manual_seed(0)
    kept: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
    left = _MOST_BYTES
    try:
        for parameter in sorted(module.parameters(), key=lambda p: p.numel()):
            left -= parameter.numel() * parameter.element_size()
            if left < 0:
                break
            if parameter.dtype not in (torch.float32, torch.float64):
                continue
            data = parameter.data
            signs = torch.randint(-1, 2, data.shape, generator=generator).to(data.dtype)
            kept.append((parameter, data))
            parameter.data = data * (1 + _UNITS * torch.finfo(data.dtype).eps * signs)
        yield
    finally:
        for parameter, data in kept:
            parameter.data = data


def _floats(results: Iterable[Any]) -> list[torch.Tensor]:
    tensors = [value for value in results if isinstance(value, torch.Tensor)]
    return [value.double() for value in tensors if value.is_floating_point()]
