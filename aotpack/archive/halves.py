"""A forward and its backward: two entries of an archive, of which the second reads tensors of the first.

Nothing in the manifest says this but the signatures. The backward has the name `backward_name`, and is called with
`saved`, a dict that names outputs and inputs of the forward by number, and with `output_gradients`. The forward returns
more tensors than its result shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aotpack.archive.manifest import Entry, Manifest
from aotpack.spec import DictSpec, Spec, TensorLeaf, ValueLeaf, children, tensor_indices

SAVED = "saved"
GRADIENTS = "output_gradients"


@dataclass(frozen=True)
class Halves:
    """How a forward and its backward go together.

    Attributes:
        forward, backward: the entries.
        outputs, inputs: the outputs and inputs of the forward that the backward reads: its first inputs, in order.
        gradients: the input of the backward that is the gradient of an output of the forward, by this output.
    """

    forward: Entry
    backward: Entry
    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    gradients: Mapping[int, int]


def backward_name(forward: str) -> str:
    """The name of the backward of an entry."""
    return "backward" if forward == "forward" else f"{forward}_backward"


def halves_of(manifest: Manifest, forward: str) -> Halves | None:
    """The two entries, of which the forward has this name; None if there are no such."""
    first, second = manifest.entry(forward), manifest.entry(backward_name(forward))
    if first is None or second is None or second.in_spec.names != (SAVED, GRADIENTS):
        return None
    saved, gradients = second.in_spec.args
    if not isinstance(saved, DictSpec) or saved.keys != ("outputs", "inputs"):
        return None
    outputs, inputs = (
        _numbers(part, len(tensors)) for part, tensors in zip(saved.items, (first.outputs, first.inputs), strict=True)
    )
    count = len(list(tensor_indices(saved)))
    if outputs is None or inputs is None or list(tensor_indices(saved)) != list(range(count)):
        return None
    known = {
        one.index: other.index
        for one, other in zip(_leaves(first.out_spec), _leaves(gradients), strict=False)
        if isinstance(one, TensorLeaf) and isinstance(other, TensorLeaf)
    }
    if sorted(known.values()) != list(range(count, len(second.inputs))):
        return None
    return Halves(first, second, outputs, inputs, known)


def _numbers(spec: Spec, count: int) -> tuple[int, ...] | None:
    """The keys of a dict of tensors, which are indices below `count`."""
    if not isinstance(spec, DictSpec) or not all(isinstance(item, TensorLeaf) for item in spec.items):
        return None
    keys = tuple(key for key in spec.keys if isinstance(key, int) and 0 <= key < count)
    return keys if len(keys) == len(spec.keys) else None


def _leaves(spec: Spec) -> Iterator[Spec]:
    if isinstance(spec, (TensorLeaf, ValueLeaf)):
        yield spec
    for child in children(spec):
        yield from _leaves(child)
