"""The tensors of weight files against those that an archive wants."""

from __future__ import annotations

from aotpack.archive import Weights, WeightTensor
from aotpack.archive.safetensors import SafetensorsSet
from aotpack.errors import WeightsError
from aotpack.spec import DType


def match(weights: Weights, files: SafetensorsSet) -> dict[int, str]:
    """By constant, the name of the tensor in the files that has its new value. Tied weights need one of their names.

    Raises:
        WeightsError: tensors are missing or unknown, have another dtype or shape, or tied weights differ. All of them
            are listed.
    """
    given = set(files.names)
    wanted = {tensor.name: tensor for tensor in weights.tensors}
    problems = [f"there is no {name!r}" for name in files.names if name not in wanted]
    chosen: dict[int, str] = {}
    for tensor in weights.tensors:
        if tensor.name not in given:
            continue
        if problem := _problem(tensor, *files.spec(tensor.name)):
            problems.append(problem)
        elif tensor.constant is not None:
            first = chosen.setdefault(tensor.constant, tensor.name)
            # Most tensors are not tied: none is read for nothing.
            if first != tensor.name and files.bytes(first) != files.bytes(tensor.name):
                problems.append(f"{first!r} and {tensor.name!r} are one tensor of the model, but differ")
    named = {tensor.constant for tensor in weights.tensors if tensor.name in given}
    for tensor in weights.tensors:
        if tensor.name not in given and (tensor.constant is None or tensor.constant not in named):
            problems.append(f"{tensor.name!r} is missing")
    if problems:
        raise WeightsError(
            "the weights do not match the archive:" + "".join(f"\n  {problem}" for problem in problems),
            hint="`aotpack inspect ARCHIVE --weights` lists the tensors of the archive",
        )
    return chosen


def _problem(tensor: WeightTensor, dtype: DType, shape: tuple[int, ...]) -> str | None:
    if (dtype, shape) == (tensor.dtype, tensor.shape):
        return None
    return f"{tensor.name!r}: expected {tensor.dtype} {list(tensor.shape)}, got {dtype} {list(shape)}"
