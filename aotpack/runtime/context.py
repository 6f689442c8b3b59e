"""Contexts: entries with memory, state and random numbers of their own."""

from __future__ import annotations

import os

from aotpack.runtime.entry import Entry, entry_of
from aotpack.runtime.options import checked_threads, path_text, stream_handle

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from aotpack.runtime._native import Tensor
    from aotpack.runtime.cpus import CpuGroup
    from aotpack.runtime.profile import ProfileEvent


def _numbers(cpus: CpuGroup | None) -> tuple[int, ...]:
    if cpus is None:
        return ()
    from aotpack.runtime.cpus import parse_cpus

    return parse_cpus(cpus)


class Context(Entry):
    """An entry with its own scratch memory, state, thread count and random generator.

    Calls from several threads run one after another. Calls on a stream of the caller's return without waiting: results
    are complete when the stream has run the work, or after `synchronize()`.
    """

    def __init__(
        self,
        parent: Entry,
        *,
        num_threads: int = 0,
        seed: int | None = None,
        stream: int | None = None,
        atomic: bool = False,
        check_finite: bool = False,
        cpus: CpuGroup | None = None,
    ) -> None:
        super().__init__(
            parent, num_threads=checked_threads(num_threads), stream=stream_handle(stream), cpus=_numbers(cpus)
        )
        if atomic:
            self._set_atomic(True)
        if check_finite:
            self._set_check_finite(True)
        if seed is not None:
            self.seed(seed)

    def seed(self, seed: int) -> None:
        """Seeds the model's random operators: the sequence of calls that follows is reproducible."""
        self._set_seed(seed & 0xFFFFFFFFFFFFFFFF)

    def synchronize(self) -> None:
        """Returns when the work of all calls in this context has ended."""
        self._synchronize()

    def set_profiling(self, enabled: bool = True) -> None:
        """Whether calls in this context record when they, their steps and their kernels begin and end. Kernels are
        recorded by modules that were built with `profile=True`.
        """
        self._set_profiling(enabled)

    def profile(self) -> list[ProfileEvent]:
        """The events of the last call, in the order in which they began; at most 1,048,576. None if it has failed, or
        if calls are not profiled.
        """
        from aotpack.runtime.profile import events_of

        return events_of(self._profile())

    def state(self) -> dict[str, Tensor]:
        """Copies of the tensors that the model writes to (caches, counters, running statistics), by name.

        The values are those after the last call in this context, or the initial values.
        """
        return self._get_state()

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Writes the state and that of the random generator to a `.safetensors` file (docs/state.md).

        The file is replaced with a rename when the new one is on the disk: at any moment, whenever the process is
        killed, it is the old file or the new one.

        Raises:
            WeightsNotFoundError: the folder does not exist.
            ArchiveIOError: the file cannot be written; the old file is unchanged.
            WeightsError: the state has a complex128 tensor, for which the format has no name.
        """
        self._save_state_file(path_text(path))

    def load_state(self, state: Mapping[str, Any] | str | os.PathLike[str], *, strict: bool = True) -> None:
        """Sets the state from arrays by name, as returned by `state()`, or from a `.safetensors` file.

        A file of `save_state` also sets the random generator, so that the calls that follow return what they would
        have returned in the context that was saved.

        Args:
            state: the arrays or the file; all tensors of the state must be there, and no others.
            strict: with False, tensors that a file does not have keep their values, and tensors of the file that are
                not part of the state are ignored. Only for files.

        Raises:
            WeightsError: a name, dtype or shape does not match, or the file is malformed; the state is unchanged.
            WeightsNotFoundError: the file does not exist.
            ArchiveIOError: the file cannot be read; the state is unchanged.
        """
        if isinstance(state, (str, os.PathLike)):
            return self._load_state_file(path_text(state), 0 if strict else 3)  # AOTPACK_STATE_…
        if not strict:
            raise ValueError("strict=False is for files; merge other arrays with those of state()")
        from aotpack.runtime.named_tensors import by_name

        names, arrays = by_name(state)
        self._load_state(names, arrays)

    def reset(self) -> None:
        """Resets the state to its initial values: those of the model's weights at the next call."""
        self._reset()

    def entry(self, name: str, *, input_gradients: Sequence[str] | None = None) -> Entry:
        """Another entry of the model in this context; see `Model.entry`.

        Raises:
            EntryNotFoundError: the archive has no such entry.
        """
        entry = entry_of(self, name, input_gradients)
        entry.__dict__["_parent"] = self
        return entry

    def _own_context(self) -> Context:
        return self
