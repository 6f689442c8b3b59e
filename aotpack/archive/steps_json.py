"""The implementations of variants in the manifest: steps, references, modules. JSON → Python, strictly."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from aotpack.archive.fields import Scope, read_byte_range, read_device, read_file, read_strings
from aotpack.archive.layout import CONSTANT_ALIGNMENT
from aotpack.archive.manifest import (
    STEPS_VERSION,
    Asset,
    Constant,
    Entry,
    Implementation,
    Kernel,
    Module,
    Reference,
    Source,
    Step,
)
from aotpack.archive.node import Node, unique
from aotpack.archive.values_json import decode_intermediate
from aotpack.spec import TensorSpec

# How many tensors each source has.
_Counts = dict[Source, int]


def decode_implementations(
    variant: dict[str, Node], scope: Scope, dims: Collection[str], num_inputs: int, num_outputs: int
) -> tuple[Implementation, ...]:
    """The implementations of a variant: its `targets`, or the `modules` of an earlier format."""
    if scope.version < STEPS_VERSION:
        node = variant["modules"]
        modules = [_module(item, scope) for item in node.list()]
        implementations = tuple(Implementation.of_module(module, num_inputs, num_outputs) for module in modules)
    else:
        node = variant["targets"]
        counts = {Source.INPUT: num_inputs, Source.OUTPUT: num_outputs}
        implementations = tuple(_implementation(item, scope, dims, counts) for item in node.list())
    if not implementations:
        node.fail("empty: a variant has at least one implementation")
    unique([(node, implementation.target) for implementation in implementations])
    return implementations


def _implementation(node: Node, scope: Scope, dims: Collection[str], counts: _Counts) -> Implementation:
    members = node.object("target", "values", "steps")
    values = tuple(decode_intermediate(item, dims, scope) for item in members["values"].list())
    unique([(members["values"], value.name) for value in values])
    produced = _Produced({**counts, Source.VALUE: len(values)})
    steps = tuple(_step(item, scope, produced) for item in members["steps"].list())
    if not steps:
        members["steps"].fail("empty: an implementation has at least one step")
    produced.check_complete(node)
    return Implementation(members["target"].string(), steps, values)


class _Produced:
    """Which tensors there are at some step: the inputs, and what the steps before it have produced."""

    def __init__(self, counts: _Counts) -> None:
        self._counts = counts
        self._references: set[Reference] = set()

    def read(self, node: Node) -> Reference:
        """A reference to a tensor that there is."""
        reference = self._reference(node, tuple(Source))
        if reference.source is not Source.INPUT and reference not in self._references:
            node.fail(f"no earlier step produces the {reference.source.value} {reference.index}")
        return reference

    def add(self, node: Node) -> Reference:
        """A reference to what a step produces."""
        reference = self._reference(node, (Source.OUTPUT, Source.VALUE))
        if reference in self._references:
            node.fail(f"the {reference.source.value} {reference.index} is produced twice")
        self._references.add(reference)
        return reference

    def check_complete(self, node: Node) -> None:
        for source in (Source.OUTPUT, Source.VALUE):
            for index in range(self._counts[source]):
                if Reference(source, index) not in self._references:
                    node.fail(f"no step produces the {source.value} {index}")

    def _reference(self, node: Node, sources: Sequence[Source]) -> Reference:
        value = node.value
        key = next(iter(value)) if isinstance(value, dict) and len(value) == 1 else ""
        source = next((source for source in sources if source.value == key), None)
        if source is None:
            node.fail(f"expected an object with one key of {', '.join(source.value for source in sources)}")
        return Reference(source, node.object(key)[key].index(self._counts[source], f"{key}s"))


def _step(node: Node, scope: Scope, produced: _Produced) -> Step:
    members = node.object("device", "inputs", "outputs", "module")
    return Step(
        module=_module(members["module"], scope),
        inputs=tuple(produced.read(item) for item in members["inputs"].list()),
        outputs=tuple(produced.add(item) for item in members["outputs"].list()),
        device=read_device(members["device"], scope),
    )


def _module(node: Node, scope: Scope) -> Module:
    keys = ("target", "abi_version", "file", "constants", "imports", "kernels")
    has_assets = scope.version >= STEPS_VERSION
    members = node.object(*keys, *(("assets", "features") if has_assets else ()))
    kernels = []
    for item in members["kernels"].list():
        kernel = item.object("name", "ops")
        kernels.append(Kernel(kernel["name"].string(empty=True), read_strings(kernel["ops"], empty=True)))
    assets: tuple[Asset, ...] = ()
    features: tuple[str, ...] = ()
    if has_assets:
        assets = tuple(_asset(item, scope) for item in members["assets"].list())
        unique([(members["assets"], asset.name) for asset in assets])
        features = read_strings(members["features"])
        unique([(members["features"], feature) for feature in features])
    return Module(
        target=members["target"].string(),
        abi_version=members["abi_version"].integer(1, (1 << 32) - 1),
        file=read_file(members["file"], scope.files, "modules/"),
        constants=tuple(item.index(scope.num_constants, "constants") for item in members["constants"].list()),
        imports=read_strings(members["imports"]),
        kernels=tuple(kernels),
        assets=assets,
        features=features,
    )


def _asset(node: Node, scope: Scope) -> Asset:
    members = node.object("name", "file", "offset", "nbytes")
    file, offset, nbytes = read_byte_range(members, scope.files, "modules/")
    if offset % CONSTANT_ALIGNMENT:
        members["offset"].fail(f"{offset} is not a multiple of {CONSTANT_ALIGNMENT}")
    return Asset(members["name"].string(), file, offset, nbytes)


def check_state(node: Node, entries: Sequence[Entry], constants: Sequence[Constant]) -> None:
    """State is one tensor in a context, so all steps that read a mutated constant run on one device."""
    devices: dict[int, int | None] = {}
    for step in _steps(entries):
        for index in step.module.constants:
            if constants[index].mutated and devices.setdefault(index, step.device) != step.device:
                node.fail(f"steps on several devices read the constant {constants[index].name!r}, which is mutated")


def _steps(entries: Sequence[Entry]) -> Iterator[Step]:
    for entry in entries:
        for variant in entry.variants:
            for implementation in variant.implementations:
                yield from implementation.steps


def used_values(implementations: Sequence[Implementation]) -> tuple[TensorSpec, ...]:
    """The intermediate values of all implementations."""
    return tuple(value for implementation in implementations for value in implementation.values)
