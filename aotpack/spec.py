"""The signature of a model: dtypes, dims, tensors, their structure, and targets.

These are the values of the manifest (docs/format.md) as Python objects, without torch and numpy.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_ITEMSIZE = {
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "bfloat16": 2,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
}


class DType(enum.Enum):
    """An element type, by its name in the manifest."""

    FLOAT16 = "float16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E4M3FNUZ = "float8_e4m3fnuz"
    FLOAT8_E5M2 = "float8_e5m2"
    FLOAT8_E5M2FNUZ = "float8_e5m2fnuz"

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""
        return _ITEMSIZE[self.value]

    @property
    def numpy_name(self) -> str:
        """The name for `numpy.dtype`: the same name, except `uint16` for bfloat16 and `uint8` for float8 dtypes, which
        numpy lacks.
        """
        if self is DType.BFLOAT16:
            return "uint16"
        return "uint8" if self.is_float8 else self.value

    @property
    def is_floating(self) -> bool:
        return self.is_float8 or self in (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64, DType.BFLOAT16)

    @property
    def is_float8(self) -> bool:
        return self.value.startswith("float8")

    @property
    def is_complex(self) -> bool:
        return self in (DType.COMPLEX64, DType.COMPLEX128)

    def __str__(self) -> str:
        return self.value


# In the `dynamic_shapes` of a capture: the scalar is an input, not a constant of the signature.
DYNAMIC = "dynamic"


# ---- shapes ---------------------------------------------------------------------------------------------------------


class _Unstated(int):
    """A number that the user has not specified."""


UNSTATED: Final = _Unstated(0)
"""The default `min` of a dim."""


@dataclass(frozen=True, slots=True)
class Dim:
    """A dynamic dim of an entry, with a name and a range of sizes.

    In the `dynamic_shapes` of a capture, `2 * dim` and `dim + 1` are sizes computed from it.

    Attributes:
        name: an identifier, which error messages use.
        min: the minimum size. Negative only for a dim that an int argument determines. An explicit min of 0 guarantees
            that size 0 works; the default does not.
        max: the maximum size; None without an upper bound.
        multiple_of: every size is a multiple of this number.
    """

    name: str
    min: int = UNSTATED
    max: int | None = None
    multiple_of: int = 1

    def __mul__(self, factor: int) -> DerivedDim:
        return DerivedDim(self, factor, 0)

    __rmul__ = __mul__

    def __add__(self, summand: int) -> DerivedDim:
        return DerivedDim(self, 1, summand)

    __radd__ = __add__

    def __sub__(self, subtrahend: int) -> DerivedDim:
        return DerivedDim(self, 1, -subtrahend)

    def __str__(self) -> str:
        if self.max is None and self.min == -(2**63):
            return f"{self.name} any int"
        bounds = f"{self.name} >= {self.min}" if self.max is None else f"{self.name} in [{self.min}, {self.max}]"
        return bounds if self.multiple_of == 1 else f"{bounds} by {self.multiple_of}"


@dataclass(frozen=True, slots=True)
class DerivedDim:
    """A size of `mul` * `root` + `add`, in the `dynamic_shapes` of a capture."""

    root: Dim
    mul: int
    add: int

    def __mul__(self, factor: int) -> DerivedDim:
        return DerivedDim(self.root, self.mul * factor, self.add * factor)

    __rmul__ = __mul__

    def __add__(self, summand: int) -> DerivedDim:
        return DerivedDim(self.root, self.mul, self.add + summand)

    __radd__ = __add__

    def __sub__(self, subtrahend: int) -> DerivedDim:
        return DerivedDim(self.root, self.mul, self.add - subtrahend)

    def __str__(self) -> str:
        return str(DimRef(self.root.name, self.mul, self.add))


@dataclass(frozen=True, slots=True)
class DimRef:
    """A size of `mul` * (the value of the dim named `dim`) + `add`."""

    dim: str
    mul: int = 1
    add: int = 0

    def __str__(self) -> str:
        text = self.dim if self.mul == 1 else f"{self.mul}*{self.dim}"
        return text if self.add == 0 else f"{text}{self.add:+d}"


# A postfix program over the dims of an entry; docs/format.md lists the operations.
Code = tuple[int | float | bool | str, ...]


@dataclass(frozen=True, slots=True)
class Expr:
    """A size that is computed in a call: `text` is the readable form, `code` the program over the dims.

    `code` is None for a data-dependent size (outputs only).
    """

    text: str
    code: Code | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on the dims of a call: `text` is the readable form, `code` returns whether it holds."""

    text: str
    code: Code

    def __str__(self) -> str:
        return self.text


ShapeElement = int | DimRef | Expr


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of an entry's inputs or outputs.

    `order` lists the dims from outermost to innermost in memory. `mutated` (inputs only): the call writes to the
    caller's buffer. `number`, one of "int", "float" and "bool": a Python scalar for callers, and a tensor of rank 0 and
    dtype int64, float64 or bool for modules. `dim` (int inputs only): the dim whose value the scalar is. `formula` (int
    inputs only): the required value of the scalar. `device` is the index of the logical device in whose memory the
    tensor lies; None: always in host memory, as Python scalars do.
    """

    name: str
    dtype: DType
    shape: tuple[ShapeElement, ...]
    order: tuple[int, ...]
    mutated: bool = False
    number: str | None = None
    dim: str | None = None
    formula: DimRef | Expr | None = None
    device: int | None = 0

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        if self.number is not None:
            value = self.dim if self.formula is None else self.formula
            return self.number if value is None else f"{self.number}[{value}]"
        return f"{self.dtype}[{', '.join(str(size) for size in self.shape)}]"


def contiguous_order(rank: int) -> tuple[int, ...]:
    """The `order` of a contiguous (row-major) tensor."""
    return tuple(range(rank))


# ---- structure ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorLeaf:
    """The `index`-th tensor of the inputs or outputs."""

    index: int


@dataclass(frozen=True, slots=True)
class ValueLeaf:
    """A constant of the signature. For an input, a call must pass an equal value of the same type."""

    value: bool | int | float | str | None

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are different constants; nan is equal to itself.
        if not isinstance(other, ValueLeaf) or type(self.value) is not type(other.value):
            return False
        return self.value == other.value or (self.value != self.value and other.value != other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), str(self.value)))


def name_of_value(value: object) -> str | None:
    """The name that represents an object in a signature: `Color.RED` for a member of an enum, `torch.float64` for a
    dtype, and likewise for devices, layouts and memory formats; None for other objects.
    """
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    # Identified by the class name: this module does not import torch.
    kind = type(value)
    named = kind.__module__ == "torch" and kind.__name__ in ("dtype", "device", "layout", "memory_format")
    return str(value) if named else None


@dataclass(frozen=True, slots=True)
class TupleSpec:
    items: tuple[Spec, ...]


@dataclass(frozen=True, slots=True)
class ListSpec:
    items: tuple[Spec, ...]


Key = str | int


def plain_key(key: object) -> Key | None:
    """The str or int that represents a dict key: the key itself, or the value of an enum member.

    None for keys of other types and for ints with more than 64 bits.
    """
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, int) and not isinstance(key, bool) and -(2**63) <= key < 2**63:
        return int.__int__(key)
    return None


@dataclass(frozen=True, slots=True)
class DictSpec:
    """A dict with keys that are strings or ints, in insertion order."""

    keys: tuple[Key, ...]
    items: tuple[Spec, ...]


@dataclass(frozen=True, slots=True)
class NamedTupleSpec:
    """A namedtuple; `type` is "module:QualName", `keys` are its fields."""

    type: str
    keys: tuple[str, ...]
    items: tuple[Spec, ...]


@dataclass(frozen=True, slots=True)
class DataclassSpec:
    """A dataclass, or any object that holds `keys` as attributes; `type` is "module:QualName"."""

    type: str
    keys: tuple[str, ...]
    items: tuple[Spec, ...]


@dataclass(frozen=True, slots=True)
class CallSpec:
    """The root of an `in_spec`: positional arguments, their parameter names, and keyword arguments."""

    args: tuple[Spec, ...]
    names: tuple[str | None, ...]
    kwargs_keys: tuple[str, ...] = ()
    kwargs_items: tuple[Spec, ...] = ()


Spec = TensorLeaf | ValueLeaf | TupleSpec | ListSpec | DictSpec | NamedTupleSpec | DataclassSpec


def children(spec: Spec | CallSpec) -> tuple[Spec, ...]:
    """The specs directly below this one."""
    if isinstance(spec, (TensorLeaf, ValueLeaf)):
        return ()
    if isinstance(spec, CallSpec):
        return spec.args + spec.kwargs_items
    return spec.items


def tensor_indices(spec: Spec | CallSpec) -> Iterator[int]:
    """The indices of the tensor leaves, in the order of the tree."""
    if isinstance(spec, TensorLeaf):
        yield spec.index
    for child in children(spec):
        yield from tensor_indices(child)


@dataclass(frozen=True, slots=True)
class Signature:
    """How an entry is called: its dims, its tensors in pytree order, and the structure of arguments and result."""

    name: str
    dims: tuple[Dim, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    in_spec: CallSpec
    out_spec: Spec

    def __str__(self) -> str:
        args = []
        for spec, name in zip(self.in_spec.args, self.in_spec.names, strict=True):
            args.append(_render(spec, self.inputs) if name is None else f"{name}: {_render(spec, self.inputs)}")
        if self.in_spec.kwargs_keys:
            args.append("*")
            args += [
                f"{key}: {_render(spec, self.inputs)}"
                for key, spec in zip(self.in_spec.kwargs_keys, self.in_spec.kwargs_items, strict=True)
            ]
        text = f"{self.name}({', '.join(args)}) -> {_render(self.out_spec, self.outputs, brief=True)}"
        return text + (f" where {', '.join(map(str, self.dims))}" if self.dims else "")


# Characters of a dict of constants in the text of a signature.
_BRIEF = 60


def _has_tensors(spec: Spec) -> bool:
    if isinstance(spec, (TensorLeaf, ValueLeaf)):
        return isinstance(spec, TensorLeaf)
    return any(_has_tensors(item) for item in spec.items)


def _render(spec: Spec, tensors: tuple[TensorSpec, ...], *, brief: bool = False) -> str:
    """With `brief`, a long dict of constants alone is left out."""
    if isinstance(spec, TensorLeaf):
        return str(tensors[spec.index])
    if isinstance(spec, ValueLeaf):
        return repr(spec.value)
    items = [_render(item, tensors, brief=brief) for item in spec.items]
    if isinstance(spec, TupleSpec):
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(spec, ListSpec):
        return f"[{', '.join(items)}]"
    pairs = list(zip(spec.keys, items, strict=True))
    if isinstance(spec, DictSpec):
        text = "{" + ", ".join(f"{key!r}: {item}" for key, item in pairs) + "}"
        return "{…}" if brief and len(text) > _BRIEF and not _has_tensors(spec) else text
    return f"{spec.type.rpartition(':')[2]}({', '.join(f'{key}={item}' for key, item in pairs)})"
