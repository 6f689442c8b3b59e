"""Trained values as a file of weights: what a state has of an archive's weights, and the archive's own values."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aotpack.archive import ArchiveReader, Weights, WeightTensor, check_output
from aotpack.archive.files import sync_folder
from aotpack.archive.safetensors import DTYPE_NAMES, SafetensorsSet, open_safetensors
from aotpack.archive.safetensors_writer import write_safetensors
from aotpack.errors import WeightsError
from aotpack.runtime.packing.constant_bytes import row_major
from aotpack.spec import DType

Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True)
class ExportReport:
    """What was exported.

    Attributes:
        path, size: the file and its bytes.
        trained: the weights whose values are those of the state, by name.
        kept: the weights whose values are those of the archive.
        unused: weights that nothing in the archive depends on and that the state does not have. They are zeros.
        ignored: other tensors of the state, such as those of an optimizer.
    """

    path: Path
    size: int
    trained: tuple[str, ...]
    kept: tuple[str, ...]
    unused: tuple[str, ...]
    ignored: tuple[str, ...]


def export_weights(archive: str | os.PathLike[str], state: Files, output: str | os.PathLike[str]) -> ExportReport:
    """Writes all weights of an archive to a `.safetensors` file, as `pack_weights` and `Model.update_weights` accept
    it: with the values of a state where it has tensors of their names, and otherwise the archive's. Runs no code of the
    archive. Tied weights have one value under all their names.

    Args:
        archive: an archive with updatable weights, or a code-only archive if the state has all of its weights.
        state: a `.safetensors` file such as `Context.save_state` of a training archive writes, or several.
        output: the file to write. An existing file is replaced once the new one is complete; may be `state`.

    Raises:
        WeightsError: the archive is frozen; the state has none of its weights; or tensors have another dtype or shape,
            or are in neither. All of them are listed.
        WeightsFileError, WeightsNotFoundError: a file of the state is malformed or does not exist.
        ArchiveError: the archive cannot be read.
        BuildError, OSError: the output cannot be written.
    """
    output = Path(output)
    check_output(output)
    with ArchiveReader(archive) as reader, open_safetensors(state) as files:
        weights = reader.manifest.weights
        if weights is None:
            raise WeightsError(
                f"{archive}: the archive is frozen (it was built without --updatable): its weights cannot be replaced",
                hint="build it with `aotpack build --updatable` or `--code-only`",
            )
        by_name = {tensor.name: tensor for tensor in weights.tensors}
        sources = _sources(reader, weights, files)

        def value(name: str) -> bytes | memoryview:
            if name in sources:
                return files.bytes(sources[name])
            tensor = by_name[name]
            if tensor.constant is None:
                return bytes(math.prod(tensor.shape) * tensor.dtype.itemsize)
            return row_major(reader.manifest.constants[tensor.constant], reader.constant(tensor.constant))

        size = _write(output, weights, value)
        others = [tensor for tensor in weights.tensors if tensor.name not in sources]
        return ExportReport(
            output,
            size,
            trained=tuple(tensor.name for tensor in weights.tensors if tensor.name in sources),
            kept=tuple(tensor.name for tensor in others if tensor.constant is not None),
            unused=tuple(tensor.name for tensor in others if tensor.constant is None),
            ignored=tuple(name for name in files.names if name not in by_name),
        )


def _sources(reader: ArchiveReader, weights: Weights, files: SafetensorsSet) -> dict[str, str]:
    """By weight, the name of the tensor of the state that has its value: its own, or one that is tied to it."""
    given = set(files.names)
    problems: list[str] = []
    by_constant: dict[int, str] = {}
    sources: dict[str, str] = {}
    for tensor in weights.tensors:
        if tensor.dtype not in DTYPE_NAMES:
            problems.append(f"{tensor.name!r} has the dtype {tensor.dtype}, which .safetensors files cannot have")
        elif tensor.name in given:
            dtype, shape = files.spec(tensor.name)
            if (dtype, shape) != (tensor.dtype, tensor.shape):
                expected = f"{tensor.dtype} {list(tensor.shape)}"
                problems.append(f"{tensor.name!r}: expected {expected}, got {dtype} {list(shape)}")
                continue
            sources[tensor.name] = tensor.name
            if tensor.constant is None:
                continue
            first = by_constant.setdefault(tensor.constant, tensor.name)
            if files.bytes(first) != files.bytes(tensor.name):
                problems.append(f"{first!r} and {tensor.name!r} are one tensor of the model, but differ")
    if not problems and not sources:
        problems.append("none of its tensors is a weight of the archive")
    for tensor in weights.tensors:
        if tensor.name in given or tensor.constant is None:
            continue
        if tensor.constant in by_constant:
            sources[tensor.name] = by_constant[tensor.constant]
        elif reader.manifest.constants[tensor.constant].location is None:
            problems.append(f"{tensor.name!r} is missing, and the archive is code-only")
    if problems:
        raise WeightsError(
            "the state does not match the archive:" + "".join(f"\n  {problem}" for problem in problems),
            hint="`aotpack inspect ARCHIVE --weights` lists the tensors of the archive",
        )
    return sources


def _write(output: Path, weights: Weights, value: Callable[[str], bytes | memoryview]) -> int:
    """Writes a file beside the output, which it then replaces; returns its size."""
    # Wide elements first: each tensor then begins at a multiple of the size of its elements.
    tensors: list[WeightTensor] = sorted(weights.tensors, key=lambda tensor: -tensor.dtype.itemsize)
    specs: Mapping[str, tuple[DType, tuple[int, ...]]] = {each.name: (each.dtype, each.shape) for each in tensors}
    temporary = output.with_name(f".{output.name[:200]}.{secrets.token_hex(8)}.aotpack-tmp")
    try:
        write_safetensors(temporary, specs, value, metadata={"format": "pt"})
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        os.replace(temporary, output)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(output.parent)
    return size
