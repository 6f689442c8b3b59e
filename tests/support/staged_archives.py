"""A small archive of two stages, without torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from aotpack.archive import read_manifest
from tests.support.archives import tensor
from tests.support.splice import Part, splice


def two_affine_stages(archive: Callable[[str], Path], path: Path) -> Path:
    """The module of the recipe `affine` twice, on the devices `first` and `second`, with `hidden` between them."""
    source = archive("affine")
    (entry,) = read_manifest(source).entries
    return splice(
        path,
        [Part(source, ("input 0",), ("value 0",)), Part(source, ("value 0",), ("output 0",), device=1)],
        dims=entry.dims,
        inputs=entry.inputs,
        outputs=entry.outputs,
        values=[tensor("hidden", ["batch", 4])],
        devices=("first", "second"),
    )
