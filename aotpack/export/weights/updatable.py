"""Replaceable weights: how derived constants are computed from the source model's, as a program of its own.

The passes leave a recipe with every constant that they derive. Traced together they make the entry `fold`: original
weights in, folded and packed constants out. The runtime runs it when weights are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from aotpack.errors import BuildError
from aotpack.export.ir.program import Program, identity
from aotpack.export.ir.storage import storage_key
from aotpack.export.passes.common.noops import remove_noops
from aotpack.export.passes.runner import run_passes
from aotpack.export.torch_compat.fake_tensors import FakeTensorMode
from aotpack.export.torch_compat.symbolic_shapes import make_fx
from aotpack.export.tracing.interface import manifest_dtype, memory_order
from aotpack.export.weights.identity import Identities
from aotpack.spec import CallSpec, DictSpec, Signature, TensorLeaf, TensorSpec

FOLD = "fold"


Holder = tuple[Program, str]
"""A constant: a program and the attribute by which it knows it."""


@dataclass(frozen=True)
class StateTensor:
    """A tensor of the source model's state dict, and the constant that holds it if anything depends on it."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    holder: Holder | None


@dataclass(frozen=True)
class Replaceable:
    """What an archive needs so that its weights can be replaced.

    Attributes:
        tensors: the source models' state dict.
        fold: the program that computes `results` from tensors of the state dict; None where nothing is derived.
        results: constants of the programs, in the order of the outputs of `fold`.
    """

    tensors: tuple[StateTensor, ...]
    fold: Program | None
    results: tuple[Holder, ...]


def replaceable(programs: Sequence[Program], identities: Identities) -> Replaceable:
    """What makes the weights of programs, after their passes, replaceable: all entries and variants of an archive.

    Raises:
        BuildError: no program comes from a model with a state dict; two models have different tensors of one name; an
            entry has the name of the fold; tensors of the state dict are different views of memory that is state.
    """
    state = _state(programs)
    read = _read(programs, identities)
    _refuse_views_of_state(state, read)
    holders: dict[tuple[object, ...], Holder] = {}
    for program, name in read:
        for root in program.roots(name):
            holders.setdefault(identity(program.original(root)), (program, root))
    tensors = tuple(
        StateTensor(name, tensor.dtype, tuple(tensor.shape), holders.get(identity(tensor)))
        for name, tensor in state.items()
    )
    names: dict[int, str] = {}
    for tensor in tensors:
        if tensor.holder is not None:
            names.setdefault(identities.number(*tensor.holder), tensor.name)
    fold = _Fold(identities, names)
    results = tuple(holder for holder in read if fold.computes(*holder))
    return Replaceable(tensors, fold.program(programs[0].name, results) if results else None, results)


def _state(programs: Sequence[Program]) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = {}
    for program in programs:
        if program.signature.name == FOLD:
            raise BuildError(
                f"an entry named {FOLD!r} conflicts with the entry that folds new weights",
                hint="use another name: aot_export(…, entry=…)",
            )
        for name, tensor in program.state_dict.items():
            if identity(state.setdefault(name, tensor)) != identity(tensor):
                raise BuildError(
                    f"two models of this archive have different tensors named {name!r}, so neither can be updated",
                    hint="put the models into one module and capture its methods, or build without `updatable`",
                )
    if not state:
        raise BuildError(
            f"{programs[0].name!r} has no state dict, so its weights cannot be updatable",
            hint="capture a module with parameters or buffers, or build without `updatable` and `code_only`",
        )
    return state


def _read(programs: Sequence[Program], identities: Identities) -> list[Holder]:
    """The constants of all programs, each once."""
    read: dict[int, Holder] = {}
    for program in programs:
        for name in program.constant_names():
            read.setdefault(identities.number(program, name), (program, name))
    return list(read.values())


def _refuse_views_of_state(state: Mapping[str, torch.Tensor], read: Sequence[Holder]) -> None:
    """An update gives a value to each tensor; for two that overlap, which one holds would depend on their order."""
    written = {storage_key(p.original(name)): p.original(name) for p, name in read if p.constant_info(name).mutated}
    for name, tensor in state.items():
        base = written.get(storage_key(tensor))
        if base is not None and storage_key(base) is not None and identity(tensor) != identity(base):
            raise BuildError(
                f"{name!r} shares memory with state of another shape, so it cannot be updatable",
                hint="register one of them with persistent=False, or build without `updatable`",
            )


class _Fold:
    """Tracing of recipes over replaceable tensors; `names` says by number what these are called."""

    def __init__(self, identities: Identities, names: dict[int, str]) -> None:
        self._identities = identities
        self._names = names

    def computes(self, program: Program, attribute: str) -> bool:
        """Whether a constant is derived from replaceable tensors."""
        if program.constant_info(attribute).recipe is None:
            return False
        return any(self._number(program, root) in self._names for root in program.roots(attribute))

    def program(self, name: str, results: Sequence[Holder]) -> Program:
        """The program from replaceable tensors to `results`."""
        roots: dict[int, Holder] = {}
        for program, attribute in results:
            for root in program.roots(attribute):
                if self._number(program, root) in self._names:
                    roots.setdefault(self._number(program, root), (program, root))
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fakes = [_fake(program.original(root)) for program, root in roots.values()]
            graph_module = make_fx(partial(self._evaluate, tuple(roots), tuple(results)))(*fakes)
        for placeholder, fake in zip(graph_module.graph.find_nodes(op="placeholder"), fakes, strict=True):
            placeholder.meta["val"] = fake
        for node in graph_module.graph.find_nodes(op="get_attr"):
            # Tensors of the model that are in no state dict keep the values that they have.
            node.meta["val"] = mode.from_tensor(getattr(graph_module, str(node.target)), static_shapes=True)
        outputs: Any = graph_module.graph.output_node().args[0]
        inputs = tuple(_spec(self._names[number], fake) for number, fake in zip(roots, fakes, strict=True))
        keys = _unique([attribute for _, attribute in results])
        specs = tuple(_spec(key, node.meta["val"]) for key, node in zip(keys, outputs, strict=True))
        given = DictSpec(tuple(spec.name for spec in inputs), tuple(TensorLeaf(i) for i in range(len(inputs))))
        returned = DictSpec(keys, tuple(TensorLeaf(i) for i in range(len(specs))))
        signature = Signature(FOLD, (), inputs, specs, CallSpec((given,), ("weights",)), returned)
        graph_module.graph.output_node().args = (tuple(outputs),)
        return run_passes(Program(name, graph_module, signature), (remove_noops,))

    def _evaluate(
        self, roots: tuple[int, ...], results: tuple[Holder, ...], *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """The derived constants, each recipe followed once."""
        known = dict(zip(roots, tensors, strict=True))

        def value(program: Program, attribute: str) -> torch.Tensor:
            number = self._number(program, attribute)
            if number not in known:
                recipe = program.constant_info(attribute).recipe
                if recipe is None:
                    known[number] = program.value(attribute)
                else:
                    known[number] = recipe.function(*(value(program, name) for name in recipe.inputs))
            return known[number]

        with torch.no_grad():
            return tuple(value(*result) for result in results)

    def _number(self, program: Program, attribute: str) -> int:
        return self._identities.number(program, attribute)


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """The names, those that occur again with a number."""
    taken: dict[str, None] = {}
    for name in names:
        fresh, number = name, 1
        while fresh in taken:
            number += 1
            fresh = f"{name}_{number}"
        taken[fresh] = None
    return tuple(taken)


def _fake(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _spec(name: str, value: torch.Tensor) -> TensorSpec:
    return TensorSpec(name, manifest_dtype(value.dtype), tuple(value.shape), memory_order(value))
