"""Every error that aotpack raises on purpose.

All derive from `AotpackError`, whose `hint` says the way out when there is one. Where Python has a class of its own
for a case (`FileNotFoundError`, `ValueError`, `MemoryError`), ours derives from that too, so callers may catch either.

This module imports nothing: it is on the path of `aotpack.load`.
"""

from __future__ import annotations


class AotpackError(Exception):
    """Base of all errors of this package. `hint`, when not None, says what to do about it."""

    hint: str | None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


# ---- archives -------------------------------------------------------------------------------------------------------


class ArchiveError(AotpackError):
    """The file is no archive that this version can use."""


class ForeignArchiveError(ArchiveError):
    """The file is not an aotpack archive at all."""


class TruncatedArchiveError(ArchiveError):
    """The file ends before its contents do."""


class MalformedArchiveError(ArchiveError):
    """The container or the manifest breaks the format."""


class TamperedArchiveError(ArchiveError):
    """A hash or checksum does not match."""


class UnsupportedVersionError(ArchiveError):
    """The format, or the ABI of a module, is newer than this runtime."""


class ArchiveNotFoundError(ArchiveError, FileNotFoundError):
    """There is no such file."""


class ArchiveIOError(ArchiveError, OSError):
    """The operating system refused to read the file."""


# ---- loading and running --------------------------------------------------------------------------------------------


class UnsupportedTargetError(AotpackError):
    """No module in the archive runs on this host, or a target's name is not known."""


class MissingImportError(AotpackError):
    """A module asks for something that this runtime does not have."""


class EntryNotFoundError(AotpackError, LookupError):
    """The archive has no entry of that name."""


class InputError(AotpackError, ValueError):
    """An argument of a call is wrong: structure, dtype, rank, size, device or value."""


class WeightsError(InputError):
    """Tensors do not fit what they are for: the weights of an update, or a state. Nothing was changed."""


class WeightsFileError(WeightsError):
    """A file of weights (`.safetensors`, or the index of several) is wrong. `kind` names the way in which it is, e.g.
    `"header-too-large"`; aotpack/archive/safetensors.py lists them.
    """

    kind: str

    def __init__(self, message: str, *, kind: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class WeightsNotFoundError(WeightsError, FileNotFoundError):
    """There is no such file of weights."""


class ExecutionError(AotpackError, RuntimeError):
    """The model could not compute with these values."""


class OutOfMemoryError(AotpackError, MemoryError):
    """There was not enough memory to load or to run."""


# ---- building -------------------------------------------------------------------------------------------------------


class BuildError(AotpackError):
    """Base of what can go wrong while an archive is built."""


class CaptureError(BuildError):
    """The model could not be captured as a graph."""


class UnsupportedOperatorError(BuildError):
    """The model uses operators that have no kernel.

    Attributes:
        operators: their names, `aten.bincount`.
        uses: every place that needs one: (operator, path and class of the module around it, line of the model); the
            latter two are "" where that is not known.
    """

    operators: tuple[str, ...]
    uses: tuple[tuple[str, str, str], ...]

    def __init__(
        self,
        message: str,
        *,
        operators: tuple[str, ...] = (),
        uses: tuple[tuple[str, str, str], ...] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.operators = tuple(operators)
        self.uses = tuple(uses)


class SourceFreedError(AotpackError, RuntimeError):
    """The eager module was called after a build that freed its parameters."""


class PassError(BuildError):
    """A pass broke the program."""


class LoweringError(BuildError):
    """The program could not be lowered to source code."""


class CompileError(BuildError):
    """The compiler refused the generated sources."""


class GoldenError(BuildError):
    """The finished archive does not answer the example call as eager PyTorch did. It was not written."""


class InternalError(BuildError):
    """A fault of aotpack itself: please report it. The original exception is the cause (`__cause__`).

    Attributes:
        stage: what was going on: `"capture"`, `"lower"`, `"pack"` and the like.
        place: operator, path of the module around it, and line of the model; "" where that is not known.
    """

    stage: str
    place: tuple[str, str, str]

    def __init__(
        self, message: str, *, stage: str = "", place: tuple[str, str, str] = ("", "", ""), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.stage = stage
        self.place = place
