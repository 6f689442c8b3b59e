"""Runs the fold of an archive on this host's CPU, whatever the archive was built for."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aotpack.archive import ArchiveReader, Entry, Implementation, Manifest, Module, layout_constants, write_archive
from aotpack.errors import UnsupportedTargetError
from aotpack.runtime import load
from aotpack.targets import BY_NAME


def fold(reader: ArchiveReader, entry: Entry, inputs: Sequence[Any], *, folder: Path, threads: int) -> list[Any]:
    """The outputs of the entry that folds weights, as numpy arrays.

    Args:
        reader: the archive.
        entry: its fold.
        inputs: numpy arrays, in the order of the entry's inputs. uint16 stands for bfloat16 and uint8 for float8.
        folder: where a temporary archive may be written.
        threads: how many threads compute; 0: one per core.

    Raises:
        UnsupportedTargetError: the fold has no module that this host runs.
        ExecutionError, OutOfMemoryError: it fails.
    """
    with tempfile.TemporaryDirectory(prefix=".aotpack-fold-", dir=folder) as temporary:
        path = Path(temporary) / "fold.aotpack"
        _extract(reader, entry, path)
        return load(path, num_threads=threads or None).entry(entry.name).run(list(inputs))


def _extract(reader: ArchiveReader, entry: Entry, path: Path) -> None:
    """Writes an archive of the fold alone, for CPUs."""
    modules: dict[str, Module] = {}
    for implementation in entry.variants[0].implementations:
        if len(implementation.steps) == 1 and BY_NAME[implementation.modules[0].target].gpu is None:
            modules.setdefault(implementation.modules[0].target, implementation.modules[0])
    if not modules:
        raise UnsupportedTargetError(
            f"{reader.path}: the entry {entry.name!r}, which folds new weights, has no module for CPUs",
            hint="build the archive again with this version of aotpack",
        )
    used = list(dict.fromkeys(index for module in modules.values() for index in module.constants))
    records = [reader.manifest.constants[index] for index in used]
    layout = layout_constants(
        ((number, reader.constant(index)) for number, index in enumerate(used)),
        folder=path.parent,
    )
    constants = []
    for number, record in enumerate(records):
        placement = layout.placements[number]
        constants.append(dataclasses.replace(record, file=placement.segment, offset=placement.offset))
    files = list(layout.segments)
    implementations = []
    for module in modules.values():
        own = dataclasses.replace(module, file=len(files), constants=tuple(used.index(i) for i in module.constants))
        files.append(reader.source(module.file))
        implementations.append(Implementation.of_module(own, len(entry.inputs), len(entry.outputs)))
    variant = dataclasses.replace(entry.variants[0], implementations=tuple(implementations))
    near = dataclasses.replace(
        entry,
        inputs=tuple(dataclasses.replace(value, device=0) for value in entry.inputs),
        outputs=tuple(dataclasses.replace(value, device=0) for value in entry.outputs),
        variants=(variant,),
        goldens=(),
    )
    producer: Mapping[str, str] = reader.manifest.producer
    write_archive(path, Manifest(reader.manifest.name, producer, tuple(constants), (near,)), files)
