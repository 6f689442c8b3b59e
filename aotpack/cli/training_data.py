"""The samples that `aotpack train` trains with: arrays by name, in batches of an order that the seed decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aotpack.cli.arrays import load_arrays
from aotpack.errors import ArchiveNotFoundError, InputError
from aotpack.spec import Dim, Signature, TensorSpec

Array = npt.NDArray[Any]

_USUAL_BATCH = 64


@dataclass(frozen=True)
class Samples:
    """Arrays with as many rows, one for each input, and how they are divided into batches.

    Every epoch has another order, which depends on the seed and the number of the epoch alone. What remains of an epoch
    and is less than a batch is left out.
    """

    arrays: tuple[Array, ...]
    batch: int
    seed: int

    @property
    def count(self) -> int:
        return len(self.arrays[0])

    @property
    def batches(self) -> int:
        """Of an epoch."""
        return self.count // self.batch

    def of_step(self, step: int) -> list[Array]:
        """The batch of a step, counted from 0."""
        epoch, number = divmod(step, self.batches)
        rows = np.sort(_order(self.count, self.seed, epoch)[number * self.batch : (number + 1) * self.batch])
        return [np.ascontiguousarray(array[rows]) for array in self.arrays]


@lru_cache(maxsize=1)
def _order(count: int, seed: int, epoch: int) -> npt.NDArray[np.intp]:
    return np.random.default_rng([seed, epoch]).permutation(count)


def read_samples(path: Path, signature: Signature, batch: int | None, seed: int) -> Samples:
    """The samples in an .npz file, or in a folder with an .npy file for each input.

    Args:
        path: of the file or folder. Arrays have the names of the inputs, and a row for each sample.
        signature: of the entry. Its numbers are hyperparameters, which are not read.
        batch: samples of a batch; None: as many as the entry takes, or 64.
        seed: of the order.

    Raises:
        ArchiveNotFoundError: there is no such file or folder.
        InputError: an array is missing or unknown, they have different numbers of rows, or too few for one batch.
    """
    inputs = [value for value in signature.inputs if value.number is None]
    names = [value.name for value in inputs]
    found = _mapped(path, names) if path.is_dir() else load_arrays(path, names)
    for value, array in zip(inputs, found, strict=True):
        if array.ndim == 0:
            raise InputError(f"{value.name!r} in {path} is one number", hint="it needs a row for each sample")
    rows = {name: len(array) for name, array in zip(names, found, strict=True)}
    if len(set(rows.values())) != 1:
        raise InputError(f"the arrays in {path} have different numbers of rows: {rows}")
    size = _batch(inputs, signature.dims, batch)
    count = rows[names[0]]
    if count < size:
        raise InputError(f"{path} has {count} samples, less than a batch of {size}", hint="use a smaller --batch")
    return Samples(tuple(found), size, seed)


def _mapped(folder: Path, names: Sequence[str]) -> list[Array]:
    found: list[Array] = []
    for name in names:
        file = folder / f"{name}.npy"
        try:
            found.append(np.load(file, mmap_mode="r", allow_pickle=False))
        except FileNotFoundError:
            raise ArchiveNotFoundError(
                f"no such file: {file}", hint=f"the folder needs {', '.join(f'{name}.npy' for name in names)}"
            ) from None
        except ValueError as error:
            raise InputError(f"{file} is not an .npy file: {error}", hint="create it with numpy.save") from None
    return found


def _batch(inputs: Sequence[TensorSpec], dims: Sequence[Dim], asked: int | None) -> int:
    """Samples of a batch: what the entry fixes, or what was asked for; the call checks its range."""
    if not inputs:
        raise InputError("the entry takes no samples")
    fixed = {value.shape[0] for value in inputs if value.shape and isinstance(value.shape[0], int)}
    if fixed:
        size = int(max(fixed))
        if asked not in (None, size):
            raise InputError(f"the archive takes batches of {size}, not of {asked}", hint="leave --batch out")
        return size
    first = str(inputs[0].shape[0]) if inputs[0].shape else ""
    dim = next((dim for dim in dims if dim.name == first), None)
    most = _USUAL_BATCH if dim is None or dim.max is None else dim.max
    return asked or min(_USUAL_BATCH, most)
