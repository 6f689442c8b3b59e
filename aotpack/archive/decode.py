"""Canonical JSON → manifest, strictly: what docs/format.md does not allow is a `MalformedArchiveError`.

The files and constants are read here; entry_json.py, steps_json.py, values_json.py, spec_json.py and weights_json.py
read the rest.
"""

from __future__ import annotations

from aotpack.archive.encode import canonical
from aotpack.archive.entry_json import decode_entry
from aotpack.archive.fields import (
    Scope,
    extent,
    overlaps,
    read_byte_range,
    read_dtype,
    read_file,
    read_integers,
    read_strings,
)
from aotpack.archive.layout import CONSTANT_ALIGNMENT, path_problem
from aotpack.archive.manifest import (
    CODE_ONLY_VERSION,
    DESCRIPTION_VERSION,
    FORMAT,
    MAIN_DEVICE,
    READABLE_VERSIONS,
    ROLES,
    STEPS_VERSION,
    Constant,
    FileEntry,
    Manifest,
)
from aotpack.archive.node import INT64_MAX, Node, malformed, parse_json, unique
from aotpack.archive.steps_json import check_state
from aotpack.archive.weights_json import check_absent, decode_weights
from aotpack.errors import UnsupportedVersionError


def decode_manifest(data: bytes) -> Manifest:
    """The manifest that `data` encodes.

    Raises:
        UnsupportedVersionError: the format version is not known.
        MalformedArchiveError: anything else is wrong; the message says where.
    """
    value = parse_json(data)
    if not isinstance(value, dict):
        malformed("manifest: expected an object at the top")
    if value.get("format") != FORMAT:
        malformed(f"manifest: format: expected {FORMAT!r}, got {value.get('format')!r}")
    version = value.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or abs(version) > INT64_MAX:
        malformed(f"manifest: format_version: expected an integer, got {version!r}")
    if version not in READABLE_VERSIONS:
        raise UnsupportedVersionError(
            f"the archive has format version {version}; this aotpack reads {' and '.join(map(str, READABLE_VERSIONS))}",
            hint="update aotpack, or build the archive again with this version",
        )
    keys = ("format", "format_version", "name", "producer", "files", "constants", "entries", "report", "weights")
    added = (("devices", STEPS_VERSION), ("description", DESCRIPTION_VERSION))
    top = Node(value, "top").object(*keys, *(key for key, since in added if version >= since))
    if canonical(value) != data:
        malformed("manifest: not in the canonical encoding (sorted keys, no white space, a newline at the end)")

    files = _files(top["files"])
    constants = tuple(_constant(node, files, version) for node in top["constants"].list())
    unique([(top["constants"], constant.name) for constant in constants])
    devices = _devices(top["devices"]) if version >= STEPS_VERSION else (MAIN_DEVICE,)
    scope = Scope(version, files, len(constants), len(devices))
    entries = tuple(decode_entry(node, scope) for node in top["entries"].list())
    if not entries:
        top["entries"].fail("empty: an archive has at least one entry")
    unique([(top["entries"], entry.name) for entry in entries])
    check_state(top["entries"], entries, constants)
    weights = decode_weights(top["weights"], constants, entries)
    check_absent(top["constants"], constants, weights, entries)
    return Manifest(
        name=top["name"].string(empty=True),
        producer=_producer(top["producer"]),
        constants=constants,
        entries=entries,
        files=files,
        format_version=version,
        report=_report(top["report"], files),
        weights=weights,
        devices=devices,
        description=_report(top["description"], files) if version >= DESCRIPTION_VERSION else None,
    )


def _report(node: Node, files: tuple[FileEntry, ...]) -> int | None:
    return None if node.value is None else read_file(node, files, "reports/")


def _devices(node: Node) -> tuple[str, ...]:
    devices = read_strings(node)
    if not devices:
        node.fail("empty: an archive has at least one device")
    unique([(node, device) for device in devices])
    return devices


def _producer(node: Node) -> dict[str, str]:
    if not isinstance(node.value, dict):
        node.fail("expected an object")
    return {key: Node(value, f"{node.where}.{key}").string(empty=True) for key, value in node.value.items()}


def _files(node: Node) -> tuple[FileEntry, ...]:
    files = []
    for item in node.list():
        members = item.object("path", "size", "sha256")
        path = members["path"].string()
        problem = path_problem(path)
        if problem:
            members["path"].fail(problem)
        files.append(FileEntry(path, members["size"].integer(0), members["sha256"].sha256()))
    unique([(node, file.path) for file in files] + [(node, "manifest.json")])
    return tuple(files)


def _constant(node: Node, files: tuple[FileEntry, ...], version: int) -> Constant:
    keys = ("name", "role", "sources", "dtype", "shape", "stride", "file", "offset", "nbytes", "sha256", "mutated")
    members = node.object(*keys)
    shape, stride = read_integers(members["shape"]), read_integers(members["stride"])
    if len(shape) != len(stride):
        members["stride"].fail(f"{len(stride)} strides for {len(shape)} dims")
    dtype = read_dtype(members["dtype"])
    span = extent(shape, stride) * dtype.itemsize
    file: int | None
    offset: int | None
    sha256: str | None
    if version >= CODE_ONLY_VERSION and members["file"].value is None:
        for key in ("offset", "sha256"):
            if members[key].value is not None:
                members[key].fail("expected null, as the file is")
        file, offset, sha256, nbytes = None, None, None, members["nbytes"].integer(0)
        if span != nbytes:
            members["nbytes"].fail(f"the tensor spans {span} bytes, not {nbytes}")
    else:
        file, offset, nbytes = read_byte_range(members, files, "weights/")
        sha256 = members["sha256"].sha256()
        if offset % CONSTANT_ALIGNMENT:
            members["offset"].fail(f"{offset} is not a multiple of {CONSTANT_ALIGNMENT}")
        if span > nbytes:
            members["nbytes"].fail(f"the tensor spans {span} bytes, more than {nbytes}")
    if members["mutated"].boolean() and overlaps(shape, stride):
        members["stride"].fail("overlapping, but the constant is mutated")
    return Constant(
        name=members["name"].string(),
        role=members["role"].choice(*ROLES),
        sources=read_strings(members["sources"], empty=True),
        dtype=dtype,
        shape=shape,
        stride=stride,
        file=file,
        offset=offset,
        nbytes=nbytes,
        sha256=sha256,
        mutated=members["mutated"].boolean(),
    )
