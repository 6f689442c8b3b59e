"""The manifest of an archive as Python objects; docs/format.md is normative for every field.

`encode.py` writes them as canonical JSON, `decode.py` reads them strictly.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aotpack.spec import CallSpec, Check, Dim, DType, Signature, Spec, TensorSpec

FORMAT = "aotpack"
FORMAT_VERSION = 9
# The versions that can be read.
READABLE_VERSIONS = (3, 4, 5, 6, 7, 8, 9)
# From this version on, variants have implementations of several steps, and values have devices.
STEPS_VERSION = 6
# From this version on, an archive may lack the bytes of its weights.
CODE_ONLY_VERSION = 7
# From this version on, an archive may carry a description of its programs.
DESCRIPTION_VERSION = 8
# From this version on, variants may be for inputs that are one tensor.
SAME_VERSION = 9
# From this version on, descriptions say which nodes belong to a backward.
SEQUENCE_VERSION = 9
# The logical devices of an archive of one device.
MAIN_DEVICE = "main"
MAX_RANK = 16
ROLES = ("parameter", "buffer", "constant", "packed", "folded")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file in the archive. `sha256` is 64 lowercase hex digits."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor that modules read. `shape` and `stride` count elements, `offset` and `nbytes` bytes of file `file`.

    In a code-only archive, constants that depend on the weights have no bytes: `file`, `offset` and `sha256` are None,
    and `nbytes` is the number of bytes that they need.
    """

    name: str
    role: str
    sources: tuple[str, ...]
    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    file: int | None
    offset: int | None
    nbytes: int
    sha256: str | None
    mutated: bool = False

    @property
    def location(self) -> tuple[int, int, int] | None:
        """(file, offset, nbytes); None without bytes."""
        return None if self.file is None or self.offset is None else (self.file, self.offset, self.nbytes)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel and the source operators that it computes; for people."""

    name: str
    ops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asset:
    """Named bytes that go with a module, such as code for a device: `nbytes` at `offset` of file `file`."""

    name: str
    file: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Module:
    """A compiled module for one target. `constants` are indices into the manifest's, in the module's order.

    `features` name what the module needs of the runtime beyond its imports.
    """

    target: str
    abi_version: int
    file: int
    constants: tuple[int, ...]
    imports: tuple[str, ...]
    kernels: tuple[Kernel, ...] = ()
    assets: tuple[Asset, ...] = ()
    features: tuple[str, ...] = ()


class Source(enum.Enum):
    """Which list a `Reference` is an index of: the entry's inputs or outputs, or the implementation's values."""

    INPUT = "input"
    OUTPUT = "output"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Reference:
    """A tensor that a step reads or produces."""

    source: Source
    index: int


# Kept, so that the many modules of an entry share them.
@functools.lru_cache(maxsize=8)
def _references(source: Source, count: int) -> tuple[Reference, ...]:
    """To all tensors of a source."""
    return tuple(Reference(source, index) for index in range(count))


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a module. `device` is the index of the logical device that it runs on; None: the host."""

    module: Module
    inputs: tuple[Reference, ...]
    outputs: tuple[Reference, ...]
    device: int | None = 0


@dataclass(frozen=True, slots=True)
class Implementation:
    """What computes an entry on hosts that run `target`: steps in order, and `values` that one step hands to others."""

    target: str
    steps: tuple[Step, ...]
    values: tuple[TensorSpec, ...] = ()

    @staticmethod
    def of_module(module: Module, num_inputs: int, num_outputs: int) -> Implementation:
        """One step on the first device, of a module that computes the whole entry."""
        step = Step(module, _references(Source.INPUT, num_inputs), _references(Source.OUTPUT, num_outputs))
        return Implementation(module.target, (step,))

    @property
    def modules(self) -> tuple[Module, ...]:
        """The modules of the steps."""
        return tuple(step.module for step in self.steps)


Groups = tuple[tuple[int, ...], ...]
"""Groups of inputs of an entry, by their indices: at least two each, ascending; an input is in at most one."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Bounds on a dim of the entry; `max` is None when there is no upper bound."""

    dim: str
    min: int
    max: int | None
    multiple_of: int = 1

    def __str__(self) -> str:
        if self.min == self.max:
            return f"{self.dim} = {self.min}"
        return str(Dim(self.dim, self.min, self.max, self.multiple_of))


@dataclass(frozen=True, slots=True)
class Variant:
    """What computes the calls in which all `guards` and all `checks` hold and the inputs of each group of `same`, given
    by their indices, are one tensor, by target.
    """

    name: str
    guards: tuple[Guard, ...]
    implementations: tuple[Implementation, ...]
    checks: tuple[Check, ...] = ()
    same: Groups = ()

    @property
    def modules(self) -> tuple[Module, ...]:
        """The modules of all implementations."""
        return tuple(module for implementation in self.implementations for module in implementation.modules)

    def when(self, inputs: Sequence[TensorSpec]) -> str:
        """All that must hold, for people; empty for a variant that always fits. `inputs`: those of the entry."""
        same = (" is ".join(inputs[index].name for index in group) for group in self.same)
        return ", ".join((*map(str, (*self.guards, *self.checks)), *same))


@dataclass(frozen=True, slots=True)
class GoldenTensor:
    """Every `step`-th element of the flattened, contiguous tensor, at `offset` of file `file`."""

    dtype: DType
    shape: tuple[int, ...]
    file: int
    offset: int
    nbytes: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Golden:
    """An example call and eager's answer. `tolerance` is relative to the greatest magnitude of each output. The inputs
    of each group of `same`, given by their indices, are passed as one tensor.
    """

    inputs: tuple[GoldenTensor, ...]
    outputs: tuple[GoldenTensor, ...]
    tolerance: float
    same: Groups = ()


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    dims: tuple[Dim, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    in_spec: CallSpec
    out_spec: Spec
    variants: tuple[Variant, ...]
    goldens: tuple[Golden, ...] = ()

    @property
    def signature(self) -> Signature:
        return Signature(self.name, self.dims, self.inputs, self.outputs, self.in_spec, self.out_spec)


@dataclass(frozen=True, slots=True)
class WeightTensor:
    """A tensor of the source model's state dict. `constant` is the index of the constant that holds its original value;
    None: nothing in the archive depends on it.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    constant: int | None


@dataclass(frozen=True, slots=True)
class Fold:
    """The entry that computes constants from original weights: its output i is the new value of constant
    `results[i]`. Its inputs are named after the tensors that they are.
    """

    entry: str
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Weights:
    """What an update of the weights brings (`tensors`: all of them) and what is computed from it."""

    tensors: tuple[WeightTensor, ...]
    fold: Fold | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """`files` may be left empty for `write_archive`, which fills it in from its sources.

    `report` and `description` are None or the index of a file below `reports/`; `weights` is None when the archive is
    frozen. `devices` are the names of the logical devices; which physical device each of them is, is decided when the
    archive is loaded. The archive is code-only if constants have no bytes (`absent`).
    """

    name: str
    producer: Mapping[str, str]
    constants: tuple[Constant, ...]
    entries: tuple[Entry, ...]
    files: tuple[FileEntry, ...] = field(default=())
    format_version: int = FORMAT_VERSION
    report: int | None = None
    weights: Weights | None = None
    devices: tuple[str, ...] = (MAIN_DEVICE,)
    description: int | None = None

    @property
    def absent(self) -> tuple[Constant, ...]:
        """The constants without bytes: of a code-only archive all that depend on the weights, otherwise none."""
        return tuple(constant for constant in self.constants if constant.file is None)

    def entry(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets of all implementations, each once, in the order of the manifest."""
        seen: dict[str, None] = {}
        for entry in self.entries:
            for variant in entry.variants:
                for implementation in variant.implementations:
                    seen[implementation.target] = None
        return tuple(seen)
