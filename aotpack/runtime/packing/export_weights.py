"""The tensors of a saved state that are weights of an archive, as a file for `pack_weights` and `update_weights`."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from aotpack.archive import ArchiveReader
from aotpack.archive.safetensors import open_safetensors
from aotpack.archive.safetensors_writer import write_safetensors
from aotpack.errors import WeightsError


@dataclass(frozen=True)
class ExportReport:
    """What was written.

    Attributes:
        path: the file.
        tensors: the names of its tensors.
        missing: weights of the archive that the state does not have; of tied weights those without any of their names.
        ignored: other tensors of the state, such as those of an optimizer.
    """

    path: Path
    tensors: tuple[str, ...]
    missing: tuple[str, ...]
    ignored: tuple[str, ...]


def export_weights(
    archive: str | os.PathLike[str], state: str | os.PathLike[str], output: str | os.PathLike[str]
) -> ExportReport:
    """Writes the tensors of a `.safetensors` file of a state that have the name of a weight of an archive.

    Args:
        archive: the archive that the weights are for, updatable or code-only.
        state: a file of `Context.save_state`, or any other `.safetensors` file.
        output: the file to write; an existing one is replaced when the new one is complete.

    Raises:
        WeightsError: the archive is frozen, the state has none of its weights, or one has another dtype or shape. All
            of those are listed. No file is written.
        WeightsFileError, WeightsNotFoundError, ArchiveError, OSError: a file cannot be read or written.
    """
    with ArchiveReader(archive) as reader:
        weights = reader.manifest.weights
    if weights is None:
        raise WeightsError(
            f"{archive}: the archive is frozen: it has no list of its weights",
            hint="build it with --updatable or --code-only",
        )
    output = Path(output)
    with open_safetensors(state) as file:
        given = set(file.names)
        found = [tensor for tensor in weights.tensors if tensor.name in given]
        problems = [
            f"{tensor.name!r}: expected {tensor.dtype} {list(tensor.shape)}, got {dtype} {list(shape)}"
            for tensor in found
            for dtype, shape in [file.spec(tensor.name)]
            if (dtype, shape) != (tensor.dtype, tensor.shape)
        ]
        if not found:
            problems.append("none of its tensors has the name of a weight of the archive")
        if problems:
            raise WeightsError(
                f"{os.fspath(state)} does not match the archive:" + "".join(f"\n  {problem}" for problem in problems),
                hint="`aotpack inspect ARCHIVE --weights` lists the tensors of the archive",
            )
        # Elements of many bytes first, so that all are aligned: safetensors.torch reads no others.
        found.sort(key=lambda tensor: -tensor.dtype.itemsize)
        temporary = output.with_name(f".{output.name[:200]}.{secrets.token_hex(8)}.aotpack-tmp")
        try:
            write_safetensors(temporary, {tensor.name: (tensor.dtype, tensor.shape) for tensor in found}, file.bytes)
            os.replace(temporary, output)
        finally:
            temporary.unlink(missing_ok=True)
    named = {tensor.constant for tensor in found if tensor.constant is not None}
    names = tuple(tensor.name for tensor in found)
    missing = tuple(
        tensor.name
        for tensor in weights.tensors
        if tensor.name not in given and (tensor.constant is None or tensor.constant not in named)
    )
    return ExportReport(output, names, missing, tuple(sorted(given - set(names))))
