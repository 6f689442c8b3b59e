"""All exceptions of aotpack.

They derive from `AotpackError`, which has an optional `hint` with a remedy. Where Python has a matching class
(`FileNotFoundError`, `ValueError`, `MemoryError`), the exception also derives from that class, so callers may catch
either.

This module imports nothing, because `aotpack.load` imports it.
"""

from __future__ import annotations


class AotpackError(Exception):
    """Base class of all errors of this package. `hint` describes a remedy, or is None."""

    hint: str | None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


# ---- archives -------------------------------------------------------------------------------------------------------


class ArchiveError(AotpackError):
    """The file is not an archive that this version supports."""


class ForeignArchiveError(ArchiveError):
    """The file is not an aotpack archive."""


class TruncatedArchiveError(ArchiveError):
    """The file is incomplete."""


class MalformedArchiveError(ArchiveError):
    """The container or the manifest violates the format."""


class TamperedArchiveError(ArchiveError):
    """A hash or checksum does not match."""


class UnsupportedVersionError(ArchiveError):
    """The format, or the ABI of a module, is newer than this runtime."""


class ArchiveNotFoundError(ArchiveError, FileNotFoundError):
    """The file does not exist."""


class ArchiveIOError(ArchiveError, OSError):
    """The operating system could not read the file."""


# ---- loading and running --------------------------------------------------------------------------------------------


class UnsupportedTargetError(AotpackError):
    """The archive has no module for this host, or a target is unknown."""


class MissingImportError(AotpackError):
    """A module imports a function or library that is not available."""


class MissingWeightsError(AotpackError):
    """The archive is code-only: it contains no weights. `aotpack pack` creates an archive with weights from it."""


class CallCancelledError(AotpackError):
    """The pipeline was closed: before the call was submitted, or before it had ended."""


class MissingSourcesError(AotpackError):
    """The archive has no sources. `aotpack build --sources` stores them."""


class FolderError(AotpackError):
    """The folder of an unpacked archive cannot be packed: something is missing, out of date or does not match."""


class EntryNotFoundError(AotpackError, LookupError):
    """The archive has no entry with this name."""


class InputError(AotpackError, ValueError):
    """An argument of a call is invalid: structure, dtype, rank, size, device or value."""


class WeightsError(InputError):
    """The tensors of a weight update or of a state are invalid. Nothing was changed."""


class WeightsFileError(WeightsError):
    """A file of weights (`.safetensors`, or an index of several) is invalid.

    `kind` identifies the reason, e.g. `"header-too-large"`; aotpack/archive/safetensors.py lists all kinds.
    """

    kind: str

    def __init__(self, message: str, *, kind: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class WeightsNotFoundError(WeightsError, FileNotFoundError):
    """The file of weights does not exist."""


class ExecutionError(AotpackError, RuntimeError):
    """The model cannot compute with these values."""


class DeviceError(AotpackError, RuntimeError):
    """The model's device or its driver failed. The message says if this process cannot use the device any more."""


class OutOfMemoryError(AotpackError, MemoryError):
    """There is not enough memory to load or run the model."""


# ---- building -------------------------------------------------------------------------------------------------------


class BuildError(AotpackError):
    """Base class of errors during a build."""


class CaptureError(BuildError):
    """The model could not be captured as a graph."""


class UnsupportedOperatorError(BuildError):
    """The model uses operators without a kernel.

    Attributes:
        operators: their names, `aten.bincount`.
        uses: every use: (operator, path and class of the module that contains it, line of the model). The latter two
            are "" if unknown.
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
    """A pass produced an invalid program."""


class PartitionError(BuildError):
    """The program cannot be divided over the devices in this way."""


class DeviceMemoryError(PartitionError):
    """The devices are too few, or have too little memory for the program.

    Attributes:
        nbytes: what the program, or the part of it that is left over, needs.
        available: the memory of the devices for it.
    """

    nbytes: int
    available: int

    def __init__(self, message: str, *, nbytes: int, available: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.nbytes = nbytes
        self.available = available


class NodeTooLargeError(DeviceMemoryError):
    """A node fits on no device.

    Attributes:
        node: its name.
    """

    node: str

    def __init__(self, message: str, *, node: str, nbytes: int, available: int, hint: str | None = None) -> None:
        super().__init__(message, nbytes=nbytes, available=available, hint=hint)
        self.node = node


class UnknownNodeError(PartitionError):
    """A mapping or a list of partitions names nodes or modules that the program does not have.

    Attributes:
        names: the unknown names.
    """

    names: tuple[str, ...]

    def __init__(self, message: str, *, names: tuple[str, ...], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.names = names


class StageCycleError(PartitionError):
    """Two stages need results of each other, so they cannot run one after the other.

    Attributes:
        nodes: names of nodes on a path that leaves a stage and returns to it.
    """

    nodes: tuple[str, ...]

    def __init__(self, message: str, *, nodes: tuple[str, ...], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.nodes = nodes


class LoweringError(BuildError):
    """The program could not be lowered to source code."""


class CompileError(BuildError):
    """The compiler failed on the generated sources."""


class GoldenError(BuildError):
    """The outputs of the example call in the finished archive differ from eager PyTorch's. It was not written."""


class InternalError(BuildError):
    """A bug in aotpack; please report it. The original exception is the cause (`__cause__`).

    Attributes:
        stage: the stage of the build: `"capture"`, `"lower"`, `"pack"` and so on.
        place: operator, path of the module that contains it, and line of the model; "" if unknown.
    """

    stage: str
    place: tuple[str, str, str]

    def __init__(
        self, message: str, *, stage: str = "", place: tuple[str, str, str] = ("", "", ""), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.stage = stage
        self.place = place
