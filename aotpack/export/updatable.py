"""Replaceable weights: how derived constants are computed from the source model's, as a program of its own.

The passes leave a recipe with every constant that they derive. Traced together they make the entry `fold`: original
weights in, folded and packed constants out. The runtime runs it when weights are replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from aotpack.errors import BuildError
from aotpack.export.interface import manifest_dtype, memory_order
from aotpack.export.passes.noops import remove_noops
from aotpack.export.program import Program, identity
from aotpack.export.runner import run_passes
from aotpack.spec import CallSpec, DictSpec, Signature, TensorLeaf, TensorSpec

FOLD = "fold"


@dataclass(frozen=True)
class StateTensor:
    """A tensor of the source model's state dict, and the attribute that holds it if anything depends on it."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    attribute: str | None


@dataclass(frozen=True)
class Replaceable:
    """What an archive needs so that its weights can be replaced.

    Attributes:
        tensors: the source model's state dict.
        fold: the program that computes `results` from tensors of the state dict; None where nothing is derived.
        results: attributes of the main program, in the order of the outputs of `fold`.
    """

    tensors: tuple[StateTensor, ...]
    fold: Program | None
    results: tuple[str, ...]


def replaceable(program: Program) -> Replaceable:
    """What makes the weights of a program, after its passes, replaceable.

    Raises:
        BuildError: the model is a function, which has no state dict.
    """
    if not program.state_dict:
        raise BuildError(
            f"{program.name!r} has no state dict, so its weights cannot be made replaceable",
            hint="capture a module with parameters or buffers, or build without `updatable`",
        )
    read = list(dict.fromkeys(str(node.target) for node in program.graph.find_nodes(op="get_attr")))
    holders = {identity(program.original(root)): root for name in read for root in program.roots(name)}
    tensors = tuple(
        StateTensor(name, tensor.dtype, tuple(tensor.shape), holders.get(identity(tensor)))
        for name, tensor in program.state_dict.items()
    )
    names = {t.attribute: t.name for t in reversed(tensors) if t.attribute is not None}
    results = tuple(name for name in read if _depends(program, name, names))
    return Replaceable(tensors, _fold(program, results, names) if results else None, results)


def _depends(program: Program, attribute: str, names: dict[str, str]) -> bool:
    info = program.constant_info(attribute)
    return info.recipe is not None and any(root in names for root in program.roots(attribute))


def _fold(program: Program, results: tuple[str, ...], names: dict[str, str]) -> Program:
    roots = list(dict.fromkeys(r for result in results for r in program.roots(result) if r in names))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [_fake(program.original(root)) for root in roots]
        graph_module = make_fx(partial(_evaluate, program, tuple(roots), results))(*fakes)
    for placeholder, fake in zip(graph_module.graph.find_nodes(op="placeholder"), fakes, strict=True):
        placeholder.meta["val"] = fake
    for node in graph_module.graph.find_nodes(op="get_attr"):
        # Tensors of the model that are in no state dict keep the values that they have.
        node.meta["val"] = mode.from_tensor(getattr(graph_module, str(node.target)), static_shapes=True)
    outputs = graph_module.graph.output_node().args[0]
    inputs = tuple(_spec(names[root], fake) for root, fake in zip(roots, fakes, strict=True))
    specs = tuple(_spec(name, node.meta["val"]) for name, node in zip(results, outputs, strict=True))  # type: ignore[arg-type]
    given = DictSpec(tuple(spec.name for spec in inputs), tuple(TensorLeaf(i) for i in range(len(inputs))))
    returned = DictSpec(results, tuple(TensorLeaf(i) for i in range(len(specs))))
    signature = Signature(FOLD, (), inputs, specs, CallSpec((given,), ("weights",)), returned)
    graph_module.graph.output_node().args = (tuple(outputs),)  # type: ignore[arg-type]
    return run_passes(Program(program.name, graph_module, signature), (remove_noops,))


def _fake(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _evaluate(
    program: Program, roots: tuple[str, ...], results: tuple[str, ...], *tensors: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """The derived constants, each recipe followed once."""
    known = dict(zip(roots, tensors, strict=True))

    def value(attribute: str) -> torch.Tensor:
        if attribute not in known:
            recipe = program.constant_info(attribute).recipe
            if recipe is None:
                known[attribute] = program.value(attribute)
            else:
                known[attribute] = recipe.function(*(value(name) for name in recipe.inputs))
        return known[attribute]

    with torch.no_grad():
        return tuple(value(result) for result in results)


def _spec(name: str, value: torch.Tensor) -> TensorSpec:
    return TensorSpec(name, manifest_dtype(value.dtype), tuple(value.shape), memory_order(value))
