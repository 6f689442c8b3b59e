"""The description of an archive's programs (docs/format.md): for people and tools; the runtime does not read it.

Canonical JSON, compressed with zlib. A build writes it; reading is as strict as that of the manifest.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from aotpack.archive.encode import canonical
from aotpack.archive.manifest import FORMAT_VERSION, SEQUENCE_VERSION
from aotpack.archive.node import Node, malformed

if TYPE_CHECKING:
    from aotpack.archive.reader import ArchiveReader

# A description takes many times its compressed size in memory.
MAX_BYTES = 64 << 20
KINDS = ("input", "constant", "call", "output")


@dataclass(frozen=True, slots=True)
class DescribedValue:
    """A tensor that a node returns: `shape` in the dims of the entry, as text where a size is dynamic. A number has the
    dtype "int", "float" or "bool", the shape () and the device "".
    """

    dtype: str
    shape: tuple[int | str, ...]
    device: str

    @property
    def shape_text(self) -> str:
        """`[batch, 4]`; nothing for a number."""
        return f"[{', '.join(map(str, self.shape))}]" if self.device else ""


@dataclass(frozen=True, slots=True)
class DescribedNode:
    """A node of a program after the passes for all devices.

    Attributes:
        name: unique in the program. A node of a graph inside, such as a branch, is named after the graph:
            `true_graph_0.linear`.
        kind: one of `KINDS`.
        operator: `aten.linear` of a call; the name in the source model of a constant; "" otherwise.
        module: path of the innermost module of the source model that contains it; "" for the top.
        inputs: indices of the nodes that it reads.
        values: what it returns.
        graphs: names of the graphs inside that it calls; a node of one is named after it.
        stage: the index of the step that computes it; None where steps have copies of their own, or none needs it.
        sequence: of a program with a backward, the number of a call of the forward: its own, or that of the call that
            the node derives; None where it is neither.
        backward_of: the operator of the call that it derives: `aten.linear`, or "?" where passes have left none; "" in
            the forward.
    """

    name: str
    kind: str
    operator: str
    module: str
    inputs: tuple[int, ...]
    values: tuple[DescribedValue, ...]
    graphs: tuple[str, ...]
    stage: int | None
    sequence: int | None = None
    backward_of: str = ""

    @property
    def shapes(self) -> str:
        """The shapes of its values; once, if they are equal."""
        return _joined([value.shape_text for value in self.values])

    @property
    def dtypes(self) -> str:
        """The dtypes of its values; once, if they are equal."""
        return _joined([value.dtype for value in self.values])

    @property
    def devices(self) -> str:
        """The devices of its values; once, if they are equal."""
        return _joined([value.device for value in self.values])


def _joined(texts: Sequence[str]) -> str:
    return texts[0] if texts and len(set(texts)) == 1 else ", ".join(texts)


@dataclass(frozen=True, slots=True)
class DescribedBlock:
    """Memory of a value inside a module: `nbytes` at the sizes of the example, used from the kernel `first` to the
    kernel `last` (indices into the module's kernels). `output`: it is still in use at the end of the call.
    """

    name: str
    nbytes: int
    first: int
    last: int
    output: bool


@dataclass(frozen=True, slots=True)
class DescribedStep:
    """A module: the nodes that each of its kernels computes, in the order of the manifest's `kernels`, and its memory.
    Both are empty if the backend does not tell.
    """

    kernels: tuple[tuple[int, ...], ...]
    blocks: tuple[DescribedBlock, ...]


@dataclass(frozen=True, slots=True)
class DescribedVariant:
    """A variant of an entry: classes of modules by path, the nodes of its program in order, and the steps of each
    target.
    """

    modules: Mapping[str, str]
    nodes: tuple[DescribedNode, ...]
    targets: Mapping[str, tuple[DescribedStep, ...]]


Description = Mapping[str, Mapping[str, DescribedVariant]]
"""Entry → variant → its description."""


def encode_description(description: Description) -> bytes:
    """The bytes of the file. Equal descriptions have equal bytes, with the same zlib."""
    entries = {
        entry: {variant: asdict(found) for variant, found in variants.items()}
        for entry, variants in description.items()
    }
    return zlib.compress(canonical({"entries": entries}), 9)


def read_description(reader: ArchiveReader) -> Description | None:
    """The description of an archive; None if it has none.

    Raises:
        ArchiveError: the file is damaged.
    """
    index = reader.manifest.description
    return None if index is None else parse_description(reader.read(index), reader.manifest.format_version)


def parse_description(data: bytes, version: int = FORMAT_VERSION) -> Description:
    """The description in a file of an archive of this format version.

    Raises:
        MalformedArchiveError: it is not of the form that docs/format.md says.
    """
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(data, MAX_BYTES)
        if not inflate.eof or inflate.unused_data:
            malformed(f"the description is not one zlib stream of at most {MAX_BYTES} bytes")
        value = json.loads(text)
    except RecursionError:
        malformed("the description is nested too deeply")
    except (ValueError, zlib.error) as error:
        malformed(f"the description is not compressed JSON: {error}")
    top = _Node(value, "top").object("entries")
    return {
        entry: {variant: _variant(node, version) for variant, node in variants.members().items()}
        for entry, variants in top["entries"].members().items()
    }


class _Node(Node):
    document = "description"

    def object(self, *keys: str) -> dict[str, Any]:
        return super().object(*keys)

    def list(self) -> Iterator[Any]:
        return super().list()

    def members(self) -> dict[str, _Node]:
        """The members of an object with any keys."""
        if not isinstance(self.value, dict):
            self.fail("expected an object")
        return {key: _Node(value, f"{self.where}.{key}") for key, value in self.value.items()}


def _variant(node: _Node, version: int) -> DescribedVariant:
    members = node.object("modules", "nodes", "targets")
    nodes = list(members["nodes"].list())
    return DescribedVariant(
        {path: each.string(empty=True) for path, each in members["modules"].members().items()},
        tuple(_node(each, len(nodes), version) for each in nodes),
        {
            target: tuple(_step(step, len(nodes)) for step in steps.list())
            for target, steps in members["targets"].members().items()
        },
    )


def _node(node: _Node, count: int, version: int) -> DescribedNode:
    added = ("sequence", "backward_of") if version >= SEQUENCE_VERSION else ()
    members = node.object("name", "kind", "operator", "module", "inputs", "values", "graphs", "stage", *added)
    return DescribedNode(
        name=members["name"].string(),
        kind=members["kind"].choice(*KINDS),
        operator=members["operator"].string(empty=True),
        module=members["module"].string(empty=True),
        inputs=_indices(members["inputs"], count),
        values=tuple(_value(each) for each in members["values"].list()),
        graphs=tuple(each.string() for each in members["graphs"].list()),
        stage=_optional(members["stage"]),
        sequence=_optional(members["sequence"]) if added else None,
        backward_of=members["backward_of"].string(empty=True) if added else "",
    )


def _optional(node: _Node) -> int | None:
    return None if node.value is None else node.integer(0)


def _value(node: _Node) -> DescribedValue:
    members = node.object("dtype", "shape", "device")
    sizes = members["shape"].list()
    shape = tuple(size.string() if isinstance(size.value, str) else size.integer(0) for size in sizes)
    return DescribedValue(members["dtype"].string(), shape, members["device"].string(empty=True))


def _step(node: _Node, count: int) -> DescribedStep:
    members = node.object("kernels", "blocks")
    kernels = tuple(_indices(each, count) for each in members["kernels"].list())
    return DescribedStep(kernels, tuple(_block(each, len(kernels)) for each in members["blocks"].list()))


def _block(node: _Node, kernels: int) -> DescribedBlock:
    members = node.object("name", "nbytes", "first", "last", "output")
    first, last = (members[key].index(kernels, "kernels") for key in ("first", "last"))
    if first > last:
        node.fail(f"it is used from the kernel {first} to the kernel {last}")
    nbytes, output = members["nbytes"].integer(0), members["output"].boolean()
    return DescribedBlock(members["name"].string(), nbytes, first, last, output)


def _indices(node: _Node, count: int) -> tuple[int, ...]:
    return tuple(each.index(count, "nodes") for each in node.list())
