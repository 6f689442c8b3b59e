"""The `weights` of the manifest and what lacks bytes without them: JSON → Python, strictly."""

from __future__ import annotations

from aotpack.archive.fields import overlaps, read_dtype, read_integers
from aotpack.archive.manifest import Constant, Entry, Fold, Weights, WeightTensor
from aotpack.archive.node import Node, unique
from aotpack.spec import TensorSpec


def decode_weights(node: Node, constants: tuple[Constant, ...], entries: tuple[Entry, ...]) -> Weights | None:
    """What an update of the weights brings and what follows from it; None for a frozen archive."""
    if node.value is None:
        return None
    members = node.object("tensors", "fold")
    tensors = tuple(_tensor(item, constants) for item in members["tensors"].list())
    unique([(members["tensors"], tensor.name) for tensor in tensors])
    return Weights(tensors, _fold(members["fold"], tensors, constants, entries))


def check_absent(
    node: Node, constants: tuple[Constant, ...], weights: Weights | None, entries: tuple[Entry, ...]
) -> None:
    """That what has no bytes is what packing weights computes: all of it or, in an archive with weights, nothing.

    Args:
        node: the list of constants.
    """
    if all(constant.file is not None for constant in constants):
        return
    replaced: set[int | None] = set()
    if weights is not None:
        replaced = {tensor.constant for tensor in weights.tensors}
        replaced |= set(weights.fold.results) if weights.fold is not None else set()
    for index, constant in enumerate(constants):
        if constant.file is None and index not in replaced:
            node.fail(f"the constant {constant.name!r} has no bytes, but does not depend on the weights")
        if constant.file is not None and index in replaced:
            node.fail(f"the constant {constant.name!r} has bytes, but others that depend on the weights have none")
    if any(entry.goldens for entry in entries):
        node.fail("an archive without the bytes of its weights has example calls")


def _tensor(node: Node, constants: tuple[Constant, ...]) -> WeightTensor:
    members = node.object("name", "dtype", "shape", "constant")
    index = None if members["constant"].value is None else members["constant"].index(len(constants), "constants")
    tensor = WeightTensor(
        members["name"].string(), read_dtype(members["dtype"]), read_integers(members["shape"]), index
    )
    if index is not None and (constants[index].dtype, constants[index].shape) != (tensor.dtype, tensor.shape):
        members["constant"].fail(f"the constant {constants[index].name!r} has another dtype or shape")
    if index is not None and overlaps(constants[index].shape, constants[index].stride):
        members["constant"].fail(f"the strides of the constant {constants[index].name!r} overlap")
    return tensor


def _fold(
    node: Node, tensors: tuple[WeightTensor, ...], constants: tuple[Constant, ...], entries: tuple[Entry, ...]
) -> Fold | None:
    if node.value is None:
        return None
    members = node.object("entry", "results")
    name = members["entry"].string()
    entry = next((entry for entry in entries if entry.name == name), None)
    if entry is None:
        members["entry"].fail(f"there is no entry {name!r}")
    originals = {tensor.constant for tensor in tensors if tensor.constant is not None}
    results = tuple(item.index(len(constants), "constants") for item in members["results"].list())
    if len(results) != len(entry.outputs):
        members["results"].fail(f"{len(results)} results of an entry with {len(entry.outputs)} outputs")
    for index, output in zip(results, entry.outputs, strict=True):
        constant = constants[index]
        if constant.mutated:
            members["results"].fail(f"the constant {constant.name!r} is mutated")
        if index in originals:
            members["results"].fail(f"the constant {constant.name!r} is that of a tensor")
        if (constant.dtype, constant.shape) != (output.dtype, output.shape) or not _lies_like(constant, output.order):
            members["results"].fail(f"the constant {constant.name!r} is not what the output {output.name!r} is")
    if len(set(results)) != len(results):
        members["results"].fail("a constant appears twice")
    _check_inputs(members["entry"], entry, tensors)
    changing = originals | set(results)
    for variant in entry.variants:
        for module in variant.modules:
            for index in module.constants:
                if index in changing or constants[index].mutated:
                    members["entry"].fail(f"one of its modules reads {constants[index].name!r}, which is not fixed")
    return Fold(name, results)


def _check_inputs(node: Node, entry: Entry, tensors: tuple[WeightTensor, ...]) -> None:
    by_name = {tensor.name: tensor for tensor in tensors}
    for value in entry.inputs:
        tensor = by_name.get(value.name)
        if tensor is None or tensor.constant is None:
            node.fail(f"its input {value.name!r} is not a tensor with a constant")
        if not _same(value, tensor) or value.mutated:
            node.fail(f"its input {value.name!r} is not what the tensor is")


def _same(value: TensorSpec, tensor: WeightTensor) -> bool:
    return value.dtype is tensor.dtype and value.shape == tensor.shape


def _lies_like(constant: Constant, order: tuple[int, ...]) -> bool:
    """Whether a dense tensor in this order has the constant's strides; those of dims of size 1 mean nothing."""
    if 0 in constant.shape:
        return True
    run = 1
    for axis in reversed(order):
        if constant.shape[axis] != 1 and constant.stride[axis] != run:
            return False
        run *= constant.shape[axis]
    return True
