"""Fields that several objects of the manifest have: dtypes, lists of sizes, indices of files."""

from __future__ import annotations

from dataclasses import dataclass

from aotpack.archive.manifest import MAX_RANK, FileEntry
from aotpack.archive.node import Node
from aotpack.spec import DType


@dataclass(frozen=True, slots=True)
class Scope:
    """The format version, and what the parts of a manifest refer to."""

    version: int
    files: tuple[FileEntry, ...]
    num_constants: int
    num_devices: int


def read_device(node: Node, scope: Scope) -> int | None:
    """The index of a logical device; None: the host."""
    return None if node.value is None else node.index(scope.num_devices, "devices")


def read_dtype(node: Node) -> DType:
    return DType(node.choice(*(dtype.value for dtype in DType)))


def read_integers(node: Node) -> tuple[int, ...]:
    """At most `MAX_RANK` integers, none negative."""
    values = tuple(item.integer(0) for item in node.list())
    if len(values) > MAX_RANK:
        node.fail(f"rank {len(values)} is above {MAX_RANK}")
    return values


def extent(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """How many elements of memory a tensor spans, from its first to its last."""
    return 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def overlaps(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether two elements may share memory: some stride is within reach of the dims with smaller strides."""
    if 0 in shape:
        return False
    reach = 0
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size != 1):
        if step <= reach:
            return True
        reach += (size - 1) * step
    return False


def read_file(node: Node, files: tuple[FileEntry, ...], folder: str) -> int:
    """An index into `files` of a file whose path begins with `folder`."""
    index = node.index(len(files), "files")
    if not files[index].path.startswith(folder):
        node.fail(f"{files[index].path!r} does not begin with {folder!r}")
    return index


def read_byte_range(members: dict[str, Node], files: tuple[FileEntry, ...], folder: str) -> tuple[int, int, int]:
    """(file, offset, nbytes) of some bytes, which lie inside of the file."""
    file = read_file(members["file"], files, folder)
    offset, nbytes = members["offset"].integer(0), members["nbytes"].integer(0)
    if offset + nbytes > files[file].size:
        members["nbytes"].fail(f"bytes {offset} to {offset + nbytes} of a file of {files[file].size}")
    return file, offset, nbytes


def read_strings(node: Node, *, empty: bool = False) -> tuple[str, ...]:
    return tuple(item.string(empty=empty) for item in node.list())
