"""An updatable or code-only archive and weight files become an archive with these weights."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aotpack.archive import (
    ArchiveReader,
    Constant,
    Weights,
    check_output,
    layout_constants,
    stage_archive,
)
from aotpack.archive.fields import extent
from aotpack.archive.layout import CONSTANT_ALIGNMENT
from aotpack.archive.renumber import renumbered
from aotpack.archive.safetensors import SafetensorsSet, open_safetensors
from aotpack.errors import TamperedArchiveError, WeightsError
from aotpack.runtime.packing.clock import Clock, Progress
from aotpack.runtime.packing.folding import fold
from aotpack.runtime.packing.given import match
from aotpack.spec import DType

Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
_Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class PackReport:
    """What was packed.

    Attributes:
        path, size: the archive and its bytes.
        tensors: how many tensors of the files it contains; tied weights count once.
        derived: how many constants were computed from them.
        seconds: by phase: fold, pack, write.
    """

    path: Path
    size: int
    tensors: int
    derived: int
    seconds: dict[str, float]


def pack_weights(
    archive: str | os.PathLike[str],
    weights: Files,
    output: str | os.PathLike[str],
    *,
    num_threads: int = 0,
    progress: Progress | None = None,
) -> PackReport:
    """Writes an archive with other weights: as if the model had been built with them. Needs neither torch nor a
    compiler, and no device that the archive is for.

    Tensors are read one at a time. Those from which constants are derived go to a temporary file beside the output
    first, so that only the derived constants have to fit in memory. The same archive and weights always make the same
    bytes. Example calls are left out: their answers are those of the old weights.

    Args:
        archive: an archive with updatable weights, or a code-only archive.
        weights: a `.safetensors` file, a `….safetensors.index.json`, or a list of files, with all tensors of the
            model's state dict and no others.
        output: the archive to write; may be `archive`. An existing file is replaced once the new one is complete.
        num_threads: how many threads compute derived constants; 0: one per core.
        progress: called with (phase, None, "") when a phase begins, and (phase, seconds, "") when it ends.

    Raises:
        WeightsError: the archive is frozen, or tensors are missing, unknown, or have the wrong dtype or shape. All of
            them are listed.
        WeightsFileError, WeightsNotFoundError: a file is malformed or does not exist.
        ArchiveError: the archive cannot be read, or is damaged.
        UnsupportedTargetError: the fold of the archive has no module that this host runs.
        ExecutionError, OutOfMemoryError: derived constants cannot be computed.
        BuildError, OSError: the output cannot be written.
    """
    output = Path(output)
    check_output(output)
    clock = Clock(progress)
    with ArchiveReader(archive) as reader, open_safetensors(weights) as files:
        manifest = reader.manifest
        if manifest.weights is None:
            raise WeightsError(
                f"{archive}: the archive is frozen (it was built without --updatable): it contains no code that packs "
                "new weights",
                hint="build it with `aotpack build --updatable` or `--code-only`",
            )
        chosen = match(manifest.weights, files)
        new = _Values(manifest.constants, chosen, files)
        clock.begin("fold")
        derived = _derived(reader, manifest.weights, new, folder=output.parent, threads=num_threads)
        num_derived = len(derived)
        clock.begin("pack")
        layout = layout_constants(_values(reader, new, derived), folder=output.parent)
        kept = [i for i, file in enumerate(manifest.files) if not file.path.startswith(("weights/", "goldens/"))]
        numbers = {old: len(layout.segments) + i for i, old in enumerate(kept)}
        sources = [*layout.segments, *(reader.source(i) for i in kept)]
        clock.begin("write")
        try:
            staged = stage_archive(output, renumbered(manifest, layout.placements, numbers), sources)
        except ValueError as error:
            # A source's bytes are not those of its hash.
            raise TamperedArchiveError(f"tampered archive: {archive}: {error}") from error
        with staged:
            staged.commit()
        clock.end()
        return PackReport(output, staged.size, len(chosen), num_derived, clock.seconds)


class _Values:
    """The new values of constants that tensors of the files are."""

    def __init__(self, constants: Sequence[Constant], chosen: Mapping[int, str], files: SafetensorsSet) -> None:
        self._constants = constants
        self._chosen = chosen
        self._files = files

    def __contains__(self, index: int) -> bool:
        return index in self._chosen

    def array(self, index: int) -> _Array:
        """Row by row; the bytes of bools are 0 and 1."""
        constant = self._constants[index]
        array = np.frombuffer(self._files.bytes(self._chosen[index]), _numpy(constant.dtype)).reshape(constant.shape)
        return array.view(np.uint8) != 0 if constant.dtype is DType.BOOL else array

    def mapped(self, indices: Sequence[int], folder: Path) -> list[_Array]:
        """The same for several, in pages of a file without a name: the system may write them there to free memory."""
        places, size = [], 0
        for index in indices:
            places.append(size)
            size += -(-self._nbytes(index) // CONSTANT_ALIGNMENT) * CONSTANT_ALIGNMENT
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(max(size, 1))
            room = memoryview(mmap.mmap(file.fileno(), 0))
        arrays = []
        for index, start in zip(indices, places, strict=True):
            constant, view = self._constants[index], room[start : start + self._nbytes(index)]
            self._files.read_into(self._chosen[index], view)
            arrays.append(np.frombuffer(view, _numpy(constant.dtype)).reshape(constant.shape))
        return arrays

    def _nbytes(self, index: int) -> int:
        constant = self._constants[index]
        return math.prod(constant.shape) * constant.dtype.itemsize

    def bytes(self, index: int) -> memoryview:
        """The bytes in the constant's layout; gaps are zero."""
        constant, array = self._constants[index], self.array(index)
        if array.size == 0:
            return memoryview(b"")
        item = array.itemsize
        strides = tuple(step * item for step in constant.stride)
        same = (
            own == wanted or size == 1 for own, wanted, size in zip(array.strides, strides, array.shape, strict=True)
        )
        if all(same):
            return _bytes_of(array)
        room = np.zeros(extent(constant.shape, constant.stride), array.dtype)
        np.lib.stride_tricks.as_strided(room, constant.shape, strides)[...] = array
        return _bytes_of(room)


def _derived(
    reader: ArchiveReader, weights: Weights, new: _Values, *, folder: Path, threads: int
) -> dict[int, memoryview]:
    """The new bytes of what the fold computes, by constant."""
    if weights.fold is None:
        return {}
    entry = next(entry for entry in reader.manifest.entries if entry.name == weights.fold.entry)
    by_name = {tensor.name: tensor.constant for tensor in weights.tensors}
    indices = [index for value in entry.inputs if (index := by_name[value.name]) is not None]
    inputs = new.mapped(indices, folder)
    outputs = fold(reader, entry, inputs, folder=folder, threads=threads)
    found = {}
    for index, spec, output in zip(weights.fold.results, entry.outputs, outputs, strict=True):
        # Dense in the order of the value, which is the constant's layout.
        found[index] = _bytes_of(np.asarray(output).transpose(spec.order))
    return found


def _values(
    reader: ArchiveReader, new: _Values, derived: dict[int, memoryview]
) -> Iterator[tuple[int, bytes | memoryview]]:
    for index in range(len(reader.manifest.constants)):
        if index in new:
            yield index, new.bytes(index)
        elif index in derived:
            yield index, derived.pop(index)  # whose memory is free when it is packed
        else:
            yield index, reader.constant(index)


def _numpy(dtype: DType) -> np.dtype[Any]:
    """What stands for a dtype in calls: numpy has no bfloat16 and float8."""
    name = str(dtype)
    return np.dtype("uint16" if name == "bfloat16" else "uint8" if name.startswith("float8") else name)


def _bytes_of(array: _Array) -> memoryview:
    """The bytes of an array, row by row, without a copy where they lie so."""
    if array.size == 0:
        return memoryview(b"")
    raw: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)  # numpy's stubs do not declare the buffer
    return memoryview(raw)
