"""The constants of an archive are computed and written down while compilers work: they do not depend on the code."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from aotpack.archive import ConstantLayout, ConstantWriter
from aotpack.errors import BuildError
from aotpack.export.backends.backend import LoweredModule
from aotpack.export.driver.early_constants import EarlyConstants, returning_memory
from aotpack.export.driver.goldens import tensor_bytes
from aotpack.export.ir.program import Program
from aotpack.export.ir.units import Unit
from aotpack.export.weights.constant_table import ConstantTable, Row
from aotpack.export.weights.identity import Identities
from aotpack.export.weights.source_module import SourceTensors
from aotpack.export.weights.updatable import Replaceable


@dataclass(frozen=True)
class PlacedConstants:
    """The constants that modules read, and the segments that they lie in."""

    table: ConstantTable
    layout: ConstantLayout[int]


def place_constants(
    modules: Sequence[tuple[Unit, Program, LoweredModule]],
    folder: Path,
    *,
    identities: Identities,
    replaceable: Replaceable | None = None,
    free_source: bool = False,
    code_only: bool = False,
    room: int = 0,
    early: EarlyConstants | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> PlacedConstants:
    """Computes the constants one at a time, each once, in the order in which the modules read them.

    Args:
        modules: of all units, in the order of the archive.
        folder: of the temporary file that they are written to.
        identities: which constants are the same.
        replaceable: the weights that the runtime can replace.
        free_source: free tensors of the source module as soon as they are written.
        code_only: leave those out that depend on replaceable weights.
        room: where they begin in the archive, see `room_for`.
        early: those that have been computed already.
        stopped: asked before each constant.

    Raises:
        BuildError: two modules see state in different layouts, or the build has `stopped`.
        OSError: the temporary file cannot be written.
    """
    table = ConstantTable(modules, identities, replaceable)
    rows = [(key, row) for key, row in enumerate(table.rows) if not (code_only and table.is_replaced(key))]
    freed = None
    if free_source:
        freed = SourceTensors(
            [program for _, program, _ in modules],
            [(row.of, row.constant.name) for _, row in rows if row.constant.literal is None],
        )
    # Of this thread: values are computed without gradients, whatever the caller's setting.
    with torch.no_grad():
        writer: ConstantWriter[int] = (
            ConstantWriter(folder=folder, room=room) if early is None else early.of(table.rows)
        )
        writer.place_all(_values(rows[len(writer) :], freed, stopped))
    layout = writer.layout()
    table.place(layout.placements)
    return PlacedConstants(table, layout)


@contextlib.contextmanager
def beside(place: Callable[[Callable[[], bool]], PlacedConstants]) -> Iterator[Future[PlacedConstants]]:
    """While active, `place` runs in another thread, with a function that says whether the block has failed."""
    stop = threading.Event()
    pool = ThreadPoolExecutor(1)
    try:
        yield pool.submit(place, stop.is_set)
    except BaseException:
        stop.set()
        raise
    finally:
        pool.shutdown()


def _values(
    rows: Iterable[tuple[int, Row]], freed: SourceTensors | None, stopped: Callable[[], bool]
) -> Iterator[tuple[int, memoryview]]:
    returned = returning_memory()
    for key, row in rows:
        if stopped():
            raise BuildError("the build was interrupted")
        value = row.value()
        yield key, tensor_bytes(value)
        nbytes = value.nbytes
        del value
        if freed is not None and row.constant.literal is None:
            freed.packed(row.of, row.constant.name)
        returned(nbytes)
