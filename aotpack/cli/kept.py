"""What forwards keep for their backwards: tensors and their sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from aotpack.archive import Manifest
from aotpack.archive.halves import Halves, halves_of
from aotpack.cli.sizes import resolve_dims, size_of
from aotpack.errors import InputError


@dataclass(frozen=True)
class Kept:
    """What a forward keeps.

    Attributes:
        backward: the entry that reads it.
        outputs, inputs: names of tensors. Outputs need memory until the backward; inputs are those of the caller.
        nbytes: of the outputs, for the least and the greatest sizes that the entry accepts; the latter only where all
            dims have an upper bound.
    """

    backward: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    nbytes: tuple[tuple[dict[str, int], int], ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        sizes = [{"dims": dims, "bytes": count} for dims, count in self.nbytes]
        return {"backward": self.backward, "outputs": self.outputs, "inputs": self.inputs, "sizes": sizes}


def kept_for_backwards(manifest: Manifest) -> dict[str, Kept]:
    """By entry: what it keeps, if it has a backward."""
    found = {entry.name: halves_of(manifest, entry.name) for entry in manifest.entries}
    return {name: _kept(halves) for name, halves in found.items() if halves is not None}


def _kept(halves: Halves) -> Kept:
    entry = halves.forward
    ends = [resolve_dims(entry, {})]
    if entry.dims and all(dim.max is not None for dim in entry.dims):
        ends.append({d.name: d.max // d.multiple_of * d.multiple_of for d in entry.dims if d.max is not None})
    return Kept(
        halves.backward.name,
        tuple(entry.outputs[i].name for i in halves.outputs),
        tuple(entry.inputs[i].name for i in halves.inputs),
        tuple((dims, count) for dims in ends if (count := _bytes(halves, dims)) is not None),
    )


def _bytes(halves: Halves, dims: dict[str, int]) -> int | None:
    """None where the entry does not accept these sizes."""
    specs = [halves.forward.outputs[i] for i in halves.outputs]
    try:
        return sum(math.prod(size_of(size, dims) for size in spec.shape) * spec.dtype.itemsize for spec in specs)
    except InputError:
        return None
