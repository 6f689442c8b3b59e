"""Canonical JSON → manifest, strictly: what docs/format.md does not allow is a `MalformedArchiveError`."""

from __future__ import annotations

import math
from collections import Counter

from aotpack.archive.encode import canonical
from aotpack.archive.fields import overlaps, read_dtype, read_file, read_integers
from aotpack.archive.layout import CONSTANT_ALIGNMENT, path_problem
from aotpack.archive.manifest import (
    FORMAT,
    FORMAT_VERSION,
    MAX_RANK,
    ROLES,
    Constant,
    Entry,
    FileEntry,
    Golden,
    GoldenTensor,
    Guard,
    Kernel,
    Manifest,
    Module,
    Variant,
)
from aotpack.archive.node import INT64_MAX, Node, malformed, parse_json, unique
from aotpack.archive.spec_json import decode_call, decode_spec
from aotpack.archive.weights_json import decode_weights
from aotpack.errors import UnsupportedVersionError
from aotpack.spec import Check, Code, Dim, DimRef, Expr, ShapeElement, TensorSpec, tensor_indices


def decode_manifest(data: bytes) -> Manifest:
    """See `Manifest.from_json`."""
    value = parse_json(data)
    if not isinstance(value, dict):
        malformed("manifest: expected an object at the top")
    if value.get("format") != FORMAT:
        malformed(f"manifest: format: expected {FORMAT!r}, got {value.get('format')!r}")
    version = value.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or abs(version) > INT64_MAX:
        malformed(f"manifest: format_version: expected an integer, got {version!r}")
    if version != FORMAT_VERSION:
        raise UnsupportedVersionError(
            f"the archive has format version {version}; this aotpack knows version {FORMAT_VERSION}",
            hint="update aotpack, or build the archive again with this version",
        )
    keys = ("format", "format_version", "name", "producer", "files", "constants", "entries", "report", "weights")
    top = Node(value, "top").object(*keys)
    if canonical(value) != data:
        malformed("manifest: not in the canonical encoding (sorted keys, no white space, a newline at the end)")

    files = _files(top["files"])
    constants = tuple(_constant(node, files) for node in top["constants"].list())
    unique([(top["constants"], constant.name) for constant in constants])
    entries = tuple(_entry(node, files, len(constants)) for node in top["entries"].list())
    if not entries:
        top["entries"].fail("empty: an archive has at least one entry")
    unique([(top["entries"], entry.name) for entry in entries])
    return Manifest(
        name=top["name"].string(empty=True),
        producer=_producer(top["producer"]),
        constants=constants,
        entries=entries,
        files=files,
        format_version=version,
        report=None if top["report"].value is None else read_file(top["report"], files, "reports/"),
        weights=decode_weights(top["weights"], constants, entries),
    )


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


def _range(members: dict[str, Node], files: tuple[FileEntry, ...], folder: str) -> tuple[int, int, int]:
    """(file, offset, nbytes) of some bytes, which lie inside of the file."""
    file = read_file(members["file"], files, folder)
    offset, nbytes = members["offset"].integer(0), members["nbytes"].integer(0)
    if offset + nbytes > files[file].size:
        members["nbytes"].fail(f"bytes {offset} to {offset + nbytes} of a file of {files[file].size}")
    return file, offset, nbytes


def _strings(node: Node, *, empty: bool = False) -> tuple[str, ...]:
    return tuple(item.string(empty=empty) for item in node.list())


def _constant(node: Node, files: tuple[FileEntry, ...]) -> Constant:
    keys = ("name", "role", "sources", "dtype", "shape", "stride", "file", "offset", "nbytes", "sha256", "mutated")
    members = node.object(*keys)
    shape, stride = read_integers(members["shape"]), read_integers(members["stride"])
    if len(shape) != len(stride):
        members["stride"].fail(f"{len(stride)} strides for {len(shape)} dims")
    file, offset, nbytes = _range(members, files, "weights/")
    if offset % CONSTANT_ALIGNMENT:
        members["offset"].fail(f"{offset} is not a multiple of {CONSTANT_ALIGNMENT}")
    dtype = read_dtype(members["dtype"])
    extent = 0
    if 0 not in shape:
        extent = (1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))) * dtype.itemsize
    if extent > nbytes:
        members["nbytes"].fail(f"the tensor spans {extent} bytes, more than {nbytes}")
    if members["mutated"].boolean() and overlaps(shape, stride):
        members["stride"].fail("overlapping, but the constant is mutated")
    return Constant(
        name=members["name"].string(),
        role=members["role"].choice(*ROLES),
        sources=_strings(members["sources"], empty=True),
        dtype=dtype,
        shape=shape,
        stride=stride,
        file=file,
        offset=offset,
        nbytes=nbytes,
        sha256=members["sha256"].sha256(),
        mutated=members["mutated"].boolean(),
    )


def _entry(node: Node, files: tuple[FileEntry, ...], num_constants: int) -> Entry:
    members = node.object("name", "dims", "inputs", "outputs", "in_spec", "out_spec", "variants", "goldens")
    dims = tuple(_dim(item) for item in members["dims"].list())
    unique([(members["dims"], dim.name) for dim in dims])
    names = frozenset(dim.name for dim in dims)
    inputs = tuple(_value(item, names, output=False) for item in members["inputs"].list())
    outputs = tuple(_value(item, names, output=True) for item in members["outputs"].list())
    unique([(members["inputs"], value.name) for value in inputs])
    unique([(members["outputs"], value.name) for value in outputs])

    in_spec = decode_call(members["in_spec"], len(inputs))
    counts = Counter(tensor_indices(in_spec))
    for i in range(len(inputs)):
        if counts[i] != 1:
            members["in_spec"].fail(f"input {i} appears {counts[i]} times instead of once")
    out_spec = decode_spec(members["out_spec"], len(outputs))

    variants = tuple(_variant(item, names, files, num_constants) for item in members["variants"].list())
    if not variants:
        members["variants"].fail("empty: an entry has at least one variant")
    unique([(members["variants"], variant.name) for variant in variants])
    _check_determined(members["dims"], inputs, outputs, variants)
    goldens = tuple(_golden(item, files, inputs, outputs) for item in members["goldens"].list())
    return Entry(members["name"].string(), dims, inputs, outputs, in_spec, out_spec, variants, goldens)


def _check_determined(
    node: Node, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], variants: tuple[Variant, ...]
) -> None:
    """A dim has a value in a call only when the size of an input tells it."""
    determined = {size.dim for value in inputs for size in value.shape if isinstance(size, DimRef)}
    used = [size.dim for value in outputs for size in value.shape if isinstance(size, DimRef)]
    for dim in used + [guard.dim for variant in variants for guard in variant.guards]:
        if dim not in determined:
            node.fail(f"the dim {dim!r} is used, but no input determines it")


def _dim(node: Node) -> Dim:
    return Dim(*_bounds(node, "name"))


def _bounds(node: Node, key: str) -> tuple[str, int, int | None, int]:
    members = node.object(key, "min", "max", "multiple_of")
    low = members["min"].integer()
    high = None if members["max"].value is None else members["max"].integer()
    if high is not None and high < low:
        members["max"].fail(f"{high} is less than the least, {low}")
    return members[key].string(), low, high, members["multiple_of"].integer(1)


def _value(node: Node, dims: frozenset[str], *, output: bool) -> TensorSpec:
    members = node.object("name", "dtype", "shape", "order", "mutated", "number", "dim")
    shape = tuple(_size(item, dims, output) for item in members["shape"].list())
    if len(shape) > MAX_RANK:
        members["shape"].fail(f"rank {len(shape)} is above {MAX_RANK}")
    order = read_integers(members["order"])
    if sorted(order) != list(range(len(shape))):
        members["order"].fail(f"{list(order)} is no permutation of the {len(shape)} dims")
    mutated = members["mutated"].boolean()
    if output and mutated:
        members["mutated"].fail("an output cannot be mutated")
    number = None if members["number"].value is None else members["number"].choice("int", "float", "bool")
    dim = None if members["dim"].value is None else members["dim"].choice(*sorted(dims))
    return TensorSpec(members["name"].string(), read_dtype(members["dtype"]), shape, order, mutated, number, dim)


def _size(node: Node, dims: frozenset[str], output: bool) -> ShapeElement:
    if not isinstance(node.value, dict):
        return node.integer(0)
    if "expr" in node.value:
        members = node.object("expr", "code")
        if members["code"].value is None and not output:
            members["code"].fail("only outputs may have sizes out of the data")
        return Expr(members["expr"].string(), None if members["code"].value is None else _code(members["code"]))
    members = node.object("dim", "mul", "add")
    dim = members["dim"].string()
    if dim not in dims:
        members["dim"].fail(f"there is no dim {dim!r}")
    # The value of a dim is solved for from the sizes of the inputs, which needs a positive factor. The bounds of the
    # summand leave room to negate it and to add sizes without a thought for overflow.
    return DimRef(dim, members["mul"].integer(1), members["add"].integer(-(1 << 62), 1 << 62))


def _variant(node: Node, dims: frozenset[str], files: tuple[FileEntry, ...], num_constants: int) -> Variant:
    members = node.object("name", "guards", "checks", "modules")
    guards = tuple(Guard(*_bounds(item, "dim")) for item in members["guards"].list())
    for guard in guards:
        if guard.dim not in dims:
            members["guards"].fail(f"there is no dim {guard.dim!r}")
    modules = tuple(_module(item, files, num_constants) for item in members["modules"].list())
    if not modules:
        members["modules"].fail("empty: a variant has at least one module")
    unique([(members["modules"], module.target) for module in modules])
    checks = tuple(_check(item) for item in members["checks"].list())
    return Variant(members["name"].string(), guards, modules, checks)


def _check(node: Node) -> Check:
    members = node.object("text", "code")
    return Check(members["text"].string(), _code(members["code"]))


def _code(node: Node) -> Code:
    items: list[int | float | bool | str] = []
    for item in node.list():
        if isinstance(item.value, dict):
            items.append(item.object("float")["float"].number())
        elif isinstance(item.value, (bool, str)):
            items.append(item.value)
        else:
            items.append(item.integer())
    return tuple(items)


def _module(node: Node, files: tuple[FileEntry, ...], num_constants: int) -> Module:
    members = node.object("target", "abi_version", "file", "constants", "imports", "kernels")
    kernels = []
    for item in members["kernels"].list():
        kernel = item.object("name", "ops")
        kernels.append(Kernel(kernel["name"].string(empty=True), _strings(kernel["ops"], empty=True)))
    return Module(
        target=members["target"].string(),
        abi_version=members["abi_version"].integer(1, (1 << 32) - 1),
        file=read_file(members["file"], files, "modules/"),
        constants=tuple(item.index(num_constants, "constants") for item in members["constants"].list()),
        imports=_strings(members["imports"]),
        kernels=tuple(kernels),
    )


def _golden(
    node: Node, files: tuple[FileEntry, ...], inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]
) -> Golden:
    members = node.object("inputs", "outputs", "tolerance")
    tolerance = members["tolerance"].number()
    if not (math.isfinite(tolerance) and tolerance >= 0):
        members["tolerance"].fail(f"{tolerance} is no tolerance")
    return Golden(
        inputs=_golden_tensors(members["inputs"], files, inputs, sampled=False),
        outputs=_golden_tensors(members["outputs"], files, outputs, sampled=True),
        tolerance=tolerance,
    )


def _golden_tensors(
    node: Node, files: tuple[FileEntry, ...], values: tuple[TensorSpec, ...], *, sampled: bool
) -> tuple[GoldenTensor, ...]:
    tensors = []
    for item in node.list():
        members = item.object("dtype", "shape", "file", "offset", "nbytes", "step")
        dtype, shape, step = read_dtype(members["dtype"]), read_integers(members["shape"]), members["step"].integer(1)
        file, offset, nbytes = _range(members, files, "goldens/")
        if step != 1 and not sampled:
            members["step"].fail(f"{step}, but inputs are kept whole")
        expected = -(-math.prod(shape) // step) * dtype.itemsize
        if nbytes != expected:
            members["nbytes"].fail(f"{nbytes} bytes, but shape, dtype and step make {expected}")
        tensors.append(GoldenTensor(dtype, shape, file, offset, nbytes, step))
    if len(tensors) != len(values):
        node.fail(f"{len(tensors)} tensors instead of {len(values)}")
    for tensor, value in zip(tensors, values, strict=True):
        if tensor.dtype is not value.dtype or len(tensor.shape) != value.rank:
            node.fail(f"{value.name!r} is {value}, not {tensor.dtype} of rank {len(tensor.shape)}")
    return tuple(tensors)
