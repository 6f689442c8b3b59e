"""Programs of blocks that compute the same: the passes run over the first one, the others are it over other weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from aotpack.archive import Reference
from aotpack.export.backends.backend import LoweredConstant, LoweredModule
from aotpack.export.blocks.structure import Structure, structure_of
from aotpack.export.ir import origins, regions
from aotpack.export.ir.program import ConstantInfo, Program, get_attribute
from aotpack.export.partition.split import StageProgram
from aotpack.export.torch_compat.graphs import module_over
from aotpack.export.tracing.interface import is_random_call


@dataclass(frozen=True)
class Outlined:
    """A stage of a program with what it computes, apart from the tensors that it reads."""

    stage: StageProgram
    structure: Structure
    nodes: tuple[torch.fx.Node, ...]

    @staticmethod
    def of(stage: StageProgram) -> Outlined:
        """The stage, as it was taken out of its program."""
        program = stage.program
        nodes = tuple(node for node in program.graph.nodes if node.op not in ("placeholder", "get_attr", "output"))
        results: tuple[torch.fx.Node, ...] = program.graph.output_node().args[0]  # type: ignore[assignment]
        structure = structure_of(program, nodes, results)
        inputs = program.graph.find_nodes(op="placeholder")
        # What is there for a size alone comes last.
        ordered = tuple(dict.fromkeys((*structure.inputs, *inputs)))
        specs = [replace(program.signature.inputs[inputs.index(node)], name="") for node in ordered]
        outputs = [replace(spec, name="") for spec in program.signature.outputs]
        key = (structure.key, tuple(specs), tuple(outputs), stage.device, stage.layouts_changed)
        return Outlined(stage, Structure(key, ordered, structure.constants), nodes)

    def references(self) -> dict[int, Reference]:
        """By number of an input, in the order of the structure: what it is to the entry."""
        given = dict(zip(self.stage.program.graph.find_nodes(op="placeholder"), self.stage.inputs, strict=True))
        return {number: given[node] for number, node in enumerate(self.structure.inputs)}


def is_function(program: Program) -> bool:
    """Whether what a program computes is its structure: it has no graphs inside, and draws no random numbers."""
    return not any(regions.calls_graphs(node) or is_random_call(node) for node in program.graph.nodes)


@dataclass(frozen=True)
class Instance:
    """A block that runs the code of another, its model.

    Attributes:
        stage: its inputs are in the order of its model's.
        model: the other block.
        own: the block as it was taken out of the program.
    """

    stage: StageProgram
    model: Outlined
    own: Outlined

    @staticmethod
    def of(own: Outlined, model: Outlined) -> Instance:
        """The two have equal structures."""
        number = {node: number for number, node in enumerate(model.structure.inputs)}
        references = own.references()
        order = [number[node] for node in model.stage.program.graph.find_nodes(op="placeholder")]
        stage = replace(own.stage, inputs=tuple(references[i] for i in order))
        return Instance(stage, model, own)

    def names(self, made: Program) -> dict[str, str]:
        """What the constants of `made`, the model after passes, are called here."""
        pairs = dict(zip(self.model.structure.constants, self.own.structure.constants, strict=True))
        before, own = self.model.stage.program, self.own.stage.program
        names, taken = dict(pairs), {*own.constants, *own.constant_names()}
        for attribute in made.constants:
            if attribute in names or attribute in before.constants:
                continue
            name = attribute
            for theirs, ours in pairs.items():
                name = name.replace(_plain(theirs), _plain(ours))
            free, count = name, 1
            while free in taken:
                count += 1
                free = f"{name}_{count}"
            taken.add(free)
            names[attribute] = free
        return names

    def program(self, made: Program) -> Program:
        """`made`, the model after passes, over the constants of this block."""
        names = self.names(made)
        before, own = self.model.stage.program, self.own.stage.program
        pairs = zip(self.model.structure.constants, self.own.structure.constants, strict=True)
        sources = {
            theirs: ours
            for one, other in pairs
            for theirs, ours in zip(before.constant_info(one).sources, own.constant_info(other).sources, strict=False)
        }
        derived = {
            names[attribute]: _renamed(info, names, sources)
            for attribute, info in made.constants.items()
            if attribute in names and info.recipe is not None
        }
        module = regions.copied(made.graph_module)
        origins.transfer(module, self.model.nodes, self.own.nodes)
        root = torch.nn.Module()
        for node in regions.constants(module):
            attribute = str(node.target)
            name = names[attribute]
            is_own = made.constant_info(attribute).recipe is None
            regions.hold(
                root,
                name,
                get_attribute(own.graph_module if is_own else made.graph_module, name if is_own else attribute),
            )
            node.target = name
        originals = {names[a]: own.original(names[a]) for a in made.originals if a in names}
        return replace(
            own,
            graph_module=module_over(root, module.graph),
            signature=made.signature,
            constants={**own.constants, **derived},
            originals={**own.originals, **originals},
        )


def _renamed(info: ConstantInfo, names: Mapping[str, str], sources: Mapping[str, str]) -> ConstantInfo:
    assert info.recipe is not None
    recipe = replace(info.recipe, inputs=tuple(names[name] for name in info.recipe.inputs))
    return replace(info, sources=tuple(sources.get(name, name) for name in info.sources), recipe=recipe)


def lowered_for(program: Program, lowered: LoweredModule, names: Mapping[str, str]) -> LoweredModule:
    """The code of a block for another one: `program`, which has these names for its constants."""

    def constant(each: LoweredConstant) -> LoweredConstant:
        if each.literal is not None:
            return each
        name = names[each.name]
        return replace(each, name=name, info=program.constant_info(name))

    return replace(lowered, constants=tuple(map(constant, lowered.constants)))


def _plain(attribute: str) -> str:
    """As names of derived constants have it."""
    return "".join(c if c.isalnum() else "_" for c in attribute).lstrip("_")
