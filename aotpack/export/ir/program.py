"""Program: a captured model on its way through the passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx

from aotpack.archive import Groups, Guard
from aotpack.export.ir import regions
from aotpack.export.symbolic_shapes.declared import Note, Question
from aotpack.export.torch_compat.graphs import module_over
from aotpack.export.torch_compat.tensors import storage_id
from aotpack.spec import Check, Signature


@dataclass(frozen=True)
class Recipe:
    """How a derived constant is computed: `function` of the values of the constants named in `inputs`.

    It is evaluated when the archive is packed, one constant at a time, so that a build never holds all weights twice;
    and it is traced where weights stay replaceable. So it is made of torch operators, and reads its arguments alone.

    `exact`: the value does not depend on how many threads compute it, nor on which libraries torch may use: elements
    are moved, or each is computed for itself in basic arithmetic.
    """

    function: Callable[..., torch.Tensor]
    inputs: tuple[str, ...]
    exact: bool = True


@dataclass(frozen=True)
class ConstantInfo:
    """Where a constant of a program comes from: its role in the manifest and the names in the source model."""

    role: str
    sources: tuple[str, ...]
    mutated: bool = False
    recipe: Recipe | None = None


@dataclass(frozen=True)
class Reference:
    """The example call and what eager PyTorch answered: flat tensors, inputs dense and detached.

    `open` has the reasons for which another answer may be as right (capture/open_results.py).
    """

    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    open: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """One thing that a pass did: where in the source model (the path of a module, "" for the top) and what."""

    layer: str
    note: str


@dataclass(frozen=True)
class PassReport:
    """What a pass did to a program."""

    name: str
    summary: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Program:
    """One entry of an archive before it is lowered. Immutable to its users: a pass returns a new one.

    Attributes:
        name: the model's name.
        graph_module: a flat graph, but for the graphs that operators over functions, as torch.cond, have inside
            (ir/regions.py). Placeholders are the tensors of `signature.inputs`, in order, but an int that
            varies is a SymInt, where modules get a tensor of rank 0; constants are `get_attr` nodes; the output is a
            flat tuple of the tensors of `signature.outputs`. Every node carries a fake tensor (or symbolic number) in
            `meta["val"]`. A constant without a value in memory (derived by a pass, or streamed from a file) is a tensor
            on the meta device; `value` computes or reads it.
        signature: how the entry is called.
        constants: by attribute name of `graph_module`. An attribute without an entry is a constant of its own name.
        originals: the source model's tensors that derived constants are made of, by attribute name.
        state_dict: the source model's state dict, by its names; empty for functions.
        source_module: the module that was captured; None for functions and `.pt2` files.
        load: reads a tensor of the source model, by attribute name, where it is on the meta device.
        reference: for goldens; None where the model draws random numbers.
        reports: what each pass did, in order.
        checks: what calls must satisfy beyond what `signature` says, for this program to be right.
        notes: what there is to say of the dims: what was fixed, narrowed, or traced in another way, and why.
        questions: what the trace relies on, until it has been tried out (aotpack/export/probing/questions.py).
        promised: names of dims with a bound of the user's: the archive must be right for all of their sizes.
        variants: what is compiled of this entry, in the order in which calls try it. Empty: this program alone. The
            signature is that of the entry in any case.
        companions: other entries that are built into the same archive.
    """

    name: str
    graph_module: torch.fx.GraphModule
    signature: Signature
    constants: Mapping[str, ConstantInfo] = field(default_factory=dict)
    reference: Reference | None = None
    reports: tuple[PassReport, ...] = ()
    originals: Mapping[str, torch.Tensor] = field(default_factory=dict)
    state_dict: Mapping[str, torch.Tensor] = field(default_factory=dict)
    source_module: torch.nn.Module | None = None
    load: Callable[[str], torch.Tensor] | None = None
    checks: tuple[Check, ...] = ()
    notes: tuple[Note, ...] = ()
    questions: tuple[Question, ...] = ()
    promised: frozenset[str] = frozenset()
    variants: tuple[ProgramVariant, ...] = ()
    companions: tuple[Program, ...] = ()

    @property
    def graph(self) -> torch.fx.Graph:
        return self.graph_module.graph

    def editable(self) -> torch.fx.GraphModule:
        """A graph module to change in a pass: a graph of its own over the same tensors."""
        return regions.copied(self.graph_module)

    def with_graph(
        self,
        graph_module: torch.fx.GraphModule,
        constants: Mapping[str, ConstantInfo] | None = None,
        originals: Mapping[str, torch.Tensor] | None = None,
    ) -> Program:
        """The same program over another graph, with constants added."""
        return replace(
            self,
            graph_module=graph_module,
            constants={**self.constants, **(constants or {})},
            originals={**self.originals, **(originals or {})},
        )

    def with_report(self, report: PassReport) -> Program:
        return replace(self, reports=(*self.reports, report))

    def constant_names(self) -> list[str]:
        """The attributes that the graph reads, each once."""
        return list(dict.fromkeys(str(node.target) for node in regions.constants(self.graph_module)))

    def constant_info(self, attribute: str) -> ConstantInfo:
        """What is known of a constant; an attribute of the source model describes itself."""
        known = self.constants.get(attribute)
        if known is not None:
            return known
        role = "parameter" if isinstance(self.original(attribute), torch.nn.Parameter) else "buffer"
        return ConstantInfo(role, (attribute,))

    def value(self, attribute: str) -> torch.Tensor:
        """The value of a constant: computed or read anew where it is not in memory. Not to be written to.

        Raises:
            RuntimeError: its tensor is on the meta device, and there is nothing to read it from.
        """
        info = self.constants.get(attribute)
        if info is not None and info.recipe is not None:
            with torch.no_grad():
                return info.recipe.function(*(self.value(name) for name in info.recipe.inputs))
        value = self.original(attribute).detach()
        if not value.is_meta:
            return value
        if self.load is None:
            raise RuntimeError(f"the tensor {attribute!r} has no value: it is on the meta device")
        return self.load(attribute)

    def is_exact(self, attribute: str) -> bool:
        """Whether a constant is one of the source model, or all recipes on the way to it are exact."""
        info = self.constants.get(attribute)
        if info is None or info.recipe is None:
            return True
        return info.recipe.exact and all(map(self.is_exact, info.recipe.inputs))

    def roots(self, attribute: str) -> tuple[str, ...]:
        """The tensors of the source model that a constant is computed from; the constant itself if it is one."""
        info = self.constants.get(attribute)
        if info is None or info.recipe is None:
            return (attribute,)
        return tuple(dict.fromkeys(root for name in info.recipe.inputs for root in self.roots(name)))

    def runnable(self) -> torch.fx.GraphModule:
        """The graph with all values in memory, to run it as it is."""
        module = module_over(self.graph_module, self.graph)
        for node in regions.constants(module):
            attribute = str(node.target)
            if get_attribute(module, attribute).is_meta:
                set_attribute(module, attribute, self.value(attribute))
        return module

    def original(self, attribute: str) -> torch.Tensor:
        """The tensor of the source model behind an attribute; it may be on the meta device."""
        known = self.originals.get(attribute)
        return get_attribute(self.graph_module, attribute) if known is None else known


@dataclass(frozen=True)
class ProgramVariant:
    """A program for the calls of an entry that fit all of `guards`, and in which the inputs of each group of `same`, by
    their indices, are one tensor. Its dims are those that the guards leave open.

    Its inputs and outputs are those of the entry, in number and order, and its outputs have the same memory layouts.
    """

    name: str
    guards: tuple[Guard, ...]
    program: Program
    same: Groups = ()


def identity(tensor: torch.Tensor) -> tuple[object, ...]:
    """What two tensors have in common that are the same view of one memory; meta tensors have it too."""
    layout = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
    return (storage_id(tensor), *layout)


def get_attribute(module: torch.nn.Module, path: str) -> torch.Tensor:
    """The tensor at a dotted path."""
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{path} is a {type(value).__name__}, expected a tensor")
    return value


def set_attribute(module: torch.nn.Module, path: str, value: torch.Tensor) -> None:
    """Puts a tensor, as a buffer unless it is a parameter, at a dotted path that has one."""
    *parents, name = path.split(".")
    owner: Any = module
    for part in parents:
        owner = getattr(owner, part)
    delattr(owner, name)
    if isinstance(value, torch.nn.Parameter):
        owner.register_parameter(name, value)
    else:
        owner.register_buffer(name, value, persistent=False)
