"""The `entries` of the manifest: JSON → Python, strictly."""

from __future__ import annotations

import math
from collections import Counter

from aotpack.archive.fields import Scope, read_byte_range, read_dtype, read_integers
from aotpack.archive.manifest import (
    SAME_VERSION,
    STEPS_VERSION,
    Entry,
    FileEntry,
    Golden,
    GoldenTensor,
    Groups,
    Variant,
)
from aotpack.archive.node import Node, unique
from aotpack.archive.spec_json import decode_call, decode_spec
from aotpack.archive.steps_json import decode_implementations, used_values
from aotpack.archive.values_json import check_dims, decode_check, decode_dims, decode_guard, decode_value
from aotpack.spec import TensorSpec, tensor_indices


def decode_entry(node: Node, scope: Scope) -> Entry:
    """One of the archive's entries."""
    members = node.object("name", "dims", "inputs", "outputs", "in_spec", "out_spec", "variants", "goldens")
    dims = decode_dims(members["dims"])
    names = frozenset(dim.name for dim in dims)
    inputs = tuple(decode_value(item, names, scope, output=False) for item in members["inputs"].list())
    outputs = tuple(decode_value(item, names, scope, output=True) for item in members["outputs"].list())
    unique([(members["inputs"], value.name) for value in inputs])
    unique([(members["outputs"], value.name) for value in outputs])

    in_spec = decode_call(members["in_spec"], len(inputs))
    counts = Counter(tensor_indices(in_spec))
    for i in range(len(inputs)):
        if counts[i] != 1:
            members["in_spec"].fail(f"input {i} appears {counts[i]} times instead of once")
    out_spec = decode_spec(members["out_spec"], len(outputs))

    variants = tuple(_variant(item, names, scope, inputs, len(outputs)) for item in members["variants"].list())
    if not variants:
        members["variants"].fail("empty: an entry has at least one variant")
    unique([(members["variants"], variant.name) for variant in variants])
    guards = [guard for variant in variants for guard in variant.guards]
    checks = [check for variant in variants for check in variant.checks]
    results = (*outputs, *(value for variant in variants for value in used_values(variant.implementations)))
    check_dims(members["dims"], dims, inputs, results, guards, checks)
    goldens = tuple(_golden(item, scope, inputs, outputs) for item in members["goldens"].list())
    return Entry(members["name"].string(), dims, inputs, outputs, in_spec, out_spec, variants, goldens)


def _variant(
    node: Node, dims: frozenset[str], scope: Scope, inputs: tuple[TensorSpec, ...], num_outputs: int
) -> Variant:
    implementations = "targets" if scope.version >= STEPS_VERSION else "modules"
    members = node.object("name", "guards", "checks", implementations, *_same_key(scope))
    return Variant(
        members["name"].string(),
        tuple(decode_guard(item, dims) for item in members["guards"].list()),
        decode_implementations(members, scope, dims, len(inputs), num_outputs),
        tuple(decode_check(item, dims) for item in members["checks"].list()),
        _same(members, inputs),
    )


def _same_key(scope: Scope) -> tuple[str, ...]:
    return ("same",) if scope.version >= SAME_VERSION else ()


def _same(members: dict[str, Node], inputs: tuple[TensorSpec, ...]) -> Groups:
    """The groups of inputs that are one tensor, of a variant or a golden."""
    if "same" not in members:
        return ()
    groups = []
    known: set[int] = set()
    for node in members["same"].list():
        group = tuple(item.index(len(inputs), "inputs") for item in node.list())
        if len(group) < 2:
            node.fail("has less than two inputs")
        if list(group) != sorted(set(group)):
            node.fail("not in ascending order")
        for value in (inputs[index] for index in group):
            if value.number is not None:
                node.fail(f"{value.name!r} is a number")
            first = inputs[group[0]]
            if (value.dtype, value.order, value.device) != (first.dtype, first.order, first.device):
                node.fail(f"{first.name!r} and {value.name!r} differ in dtype, order or device")
        if twice := known.intersection(group):
            node.fail(f"{inputs[min(twice)].name!r} is in two groups")
        known.update(group)
        groups.append(group)
    return tuple(groups)


def _golden(node: Node, scope: Scope, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Golden:
    files = scope.files
    members = node.object("inputs", "outputs", "tolerance", *_same_key(scope))
    tolerance = members["tolerance"].number()
    if not (math.isfinite(tolerance) and tolerance >= 0):
        members["tolerance"].fail(f"{tolerance} is not a valid tolerance")
    return Golden(
        inputs=_golden_tensors(members["inputs"], files, inputs, sampled=False),
        outputs=_golden_tensors(members["outputs"], files, outputs, sampled=True),
        tolerance=tolerance,
        same=_same(members, inputs),
    )


def _golden_tensors(
    node: Node, files: tuple[FileEntry, ...], values: tuple[TensorSpec, ...], *, sampled: bool
) -> tuple[GoldenTensor, ...]:
    tensors = []
    for item in node.list():
        members = item.object("dtype", "shape", "file", "offset", "nbytes", "step")
        dtype, shape, step = read_dtype(members["dtype"]), read_integers(members["shape"]), members["step"].integer(1)
        file, offset, nbytes = read_byte_range(members, files, "goldens/")
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
