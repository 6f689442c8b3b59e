"""The weights of a folder: the constants of its manifest in a `.safetensors` file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from aotpack.archive import Manifest, Placement
from aotpack.archive.safetensors import SafetensorsFile
from aotpack.runtime.packing.constant_bytes import from_rows, stored_as
from aotpack.runtime.packing.folder_layout import WEIGHTS


class FolderWeights:
    """The file, open for reading.

    Raises:
        WeightsNotFoundError, WeightsFileError: there is no such file, or it is malformed.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._file = SafetensorsFile(folder / WEIGHTS)
        self._constants = manifest.constants
        self._weights = manifest.weights
        located = [(place, index) for index, each in enumerate(self._constants) if (place := each.location) is not None]
        # As they are stored in the archive.
        self._order = [index for _, index in sorted(located)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()

    def problems(self) -> list[str]:
        """What does not match the manifest."""
        wanted = {self._constants[index].name: stored_as(self._constants[index]) for index in self._order}
        given = set(self._file.names)
        found = [f"{WEIGHTS}: {name!r} is missing" for name in wanted if name not in given]
        found += [
            f"{WEIGHTS}: the manifest has no constant {name!r}" for name in self._file.names if name not in wanted
        ]
        for name, (dtype, shape) in wanted.items():
            if name in given and self._file.spec(name) != (dtype, shape):
                other, size = self._file.spec(name)
                found.append(f"{WEIGHTS}: {name!r}: expected {dtype} {list(shape)}, got {other} {list(size)}")
        return found

    def values(self) -> Iterator[tuple[int, memoryview]]:
        """The bytes of the constants by their indices, as archives have them."""
        for index in self._order:
            constant = self._constants[index]
            yield index, from_rows(constant, self._file.bytes(constant.name))

    def changed(self, placements: Mapping[int, Placement]) -> tuple[int, ...]:
        """The constants with other values than those of the manifest, by their indices."""
        return tuple(index for index in self._order if placements[index].sha256 != self._constants[index].sha256)

    def folded(self, changed: tuple[int, ...]) -> list[str]:
        """What is wrong with changed constants that others are folded from, or that are folded from others."""
        if self._weights is None or self._weights.fold is None:
            return []
        related = {tensor.constant for tensor in self._weights.tensors} | set(self._weights.fold.results)
        return [
            f"{WEIGHTS}: {self._constants[index].name!r} was changed, but the archive is updatable and folds weights: "
            "pack the folder as it was, and then other weights with `aotpack pack ARCHIVE --weights FILE`"
            for index in changed
            if index in related
        ]
