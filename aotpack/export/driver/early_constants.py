"""Constants that are computed and written down while code is generated, which keeps one core busy.

The passes have decided which constants there are and how they are computed; which of them code reads, and in which
memory layout, is certain only when it has been generated. So this works on what is likely, in the order of the archive.
What turns out otherwise, and all that follows, is taken back.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

from aotpack.archive import ConstantWriter
from aotpack.archive.layout import PAGE
from aotpack.errors import BuildError
from aotpack.export.backends.backend import LoweredConstant
from aotpack.export.driver.goldens import tensor_bytes
from aotpack.export.driver.prepare import Prepared
from aotpack.export.ir.program import Program, get_attribute
from aotpack.export.ir.rewriter import is_dense
from aotpack.export.ir.units import Unit
from aotpack.export.weights.constant_table import ConstantTable, Row
from aotpack.export.weights.identity import Identities
from aotpack.export.weights.updatable import Replaceable

# Memory goes back to the system after so many bytes of constants.
_TRIM_BYTES = 32 << 20
# Seconds after which Python lets another thread go on. This one needs it for microseconds at a time, between operators
# and hashes that run without it; and it is called to a dozen of these for each constant.
_SWITCH = 0.0002
# Both hashes of a constant of so many bytes are computed at the same time.
_LONG = 16 << 20
# Archives with so many bytes of constants have room for a manifest of so many bytes, and for each constant. One with
# names of usual length takes a third of that.
_LARGE = 16 << 20
_MANIFEST, _PER_CONSTANT = 32 << 10, 1 << 10


@dataclass(frozen=True)
class _Expected:
    """What a module is expected to read."""

    constants: tuple[LoweredConstant, ...]


class EarlyConstants:
    """Computes constants in a thread while it is active as a context manager, one at a time.

    Args:
        units: what is to be compiled.
        identities: which constants are the same.
        replaceable: the weights that the runtime can replace.
        folder: of the temporary file that they are written to.
        room: where they begin in the archive, see `room_for`.
    """

    def __init__(
        self,
        units: Sequence[Prepared],
        identities: Identities,
        replaceable: Replaceable | None,
        folder: Path,
        room: int = 0,
    ) -> None:
        rows: Sequence[Row] = ()
        # Of layouts that nothing has yet.
        with contextlib.suppress(BuildError):
            rows = ConstantTable(_modules(units), identities, replaceable).rows
        # Others depend on settings that generating code changes.
        self._rows = [row for row in rows if row.is_exact]
        self._limit = len(self._rows)
        self._folder, self._room = folder, room
        self._writer: ConstantWriter[int] | None = None
        self._error: BaseException | None = None
        self._interval = sys.getswitchinterval()
        self._thread = threading.Thread(target=self._work, name="aotpack-early-constants", daemon=True)

    def __enter__(self) -> EarlyConstants:
        sys.setswitchinterval(_SWITCH)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def of(self, rows: Sequence[Row]) -> ConstantWriter[int]:
        """Ends the work; the constants that are done, of the first of these rows. Their keys are their indices.

        Raises:
            OSError: the temporary file could not be written.
        """
        self._stop()
        if self._error is not None:
            raise self._error
        writer = self._writer or ConstantWriter(folder=self._folder, room=self._room)
        agreed = 0
        for row, expected in zip(rows, self._rows[: len(writer)], strict=False):
            if not _same(row, expected):
                break
            agreed += 1
        writer.keep(agreed)
        return writer

    def _stop(self) -> None:
        self._limit = 0
        self._thread.join()

    def _work(self) -> None:
        # With as many threads as torch has. To set their number here made MKL's LU in the main thread hang afterwards.
        try:
            self._writer = ConstantWriter(folder=self._folder, room=self._room)
            returned = returning_memory()
            with torch.no_grad(), ThreadPoolExecutor(1) as hashing:
                for key, row in enumerate(self._rows):
                    if key >= self._limit:
                        return
                    value = row.value()
                    # The build waits for a constant that is under way.
                    self._writer.place(key, tensor_bytes(value), hashing if value.nbytes >= _LONG else None)
                    nbytes = value.nbytes
                    del value
                    returned(nbytes)
        except BaseException as error:
            # The build's, unless it fails before.
            self._error = error
        finally:
            sys.setswitchinterval(self._interval)


def room_for(units: Sequence[Prepared]) -> int:
    """Where the constants of these units begin in the archive: behind a manifest of any likely size. It is written
    after them, and so they need not be copied. 0, for anywhere, where copies cost little.
    """
    constants: dict[tuple[int, str], int] = {}
    for each in units:
        for piece in each.pieces:
            for name in piece.program.constant_names():
                value = get_attribute(piece.program.graph_module, name)
                constants[id(piece.program), name] = value.numel() * value.element_size()
    if sum(constants.values()) < _LARGE:
        return 0
    return -(-(_MANIFEST + _PER_CONSTANT * len(constants)) // PAGE) * PAGE


def returning_memory() -> Callable[[int], None]:
    """A function to be called with the bytes of each constant that has been freed: it has glibc give memory back to the
    system, of which it keeps blocks below 32 MB.
    """
    freed = 0

    def returned(nbytes: int) -> None:
        nonlocal freed
        freed += nbytes
        if freed >= _TRIM_BYTES:
            freed = 0
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)

    return returned


def can_be_early(units: Sequence[Prepared]) -> bool:
    """Whether constants of these units can be computed beside other work: their values are in memory."""
    return all(piece.program.load is None and piece.model is None for each in units for piece in each.pieces)


def _modules(units: Sequence[Prepared]) -> list[tuple[Unit, Program, _Expected]]:
    """By target, as modules are compiled and packed."""
    found = []
    for each in units:
        targets = dict.fromkeys(target for piece in each.pieces for target in piece.targets)
        for target in targets:
            own = [piece.program for piece in each.pieces if target in piece.targets]
            found += [(each.unit, program, _expected(program)) for program in own]
    return found


def _expected(program: Program) -> _Expected:
    return _Expected(tuple(_constant(program, name) for name in program.constant_names()))


def _constant(program: Program, attribute: str) -> LoweredConstant:
    value = get_attribute(program.graph_module, attribute)
    shape = tuple(value.shape)
    stride = value.stride() if is_dense(value) else torch.empty(shape, device="meta").stride()
    return LoweredConstant(attribute, program.constant_info(attribute), value.dtype, shape, stride)


def _same(row: Row, expected: Row) -> bool:
    own, other = row.constant, expected.constant
    return (
        own.literal is None
        and row.of is expected.of
        and (own.name, own.layout, row.label) == (other.name, other.layout, expected.label)
    )
