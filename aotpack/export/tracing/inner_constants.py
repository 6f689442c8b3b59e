"""Tensors that functions of torch.cond and loops create from numbers: `torch.tensor([1.0, 2.0])` in a branch.

torch.export leaves them as attributes of the graph inside, where no later trace can read them. Here they become
constants of the program, which the graph gets as operands.
"""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from aotpack.export.ir.regions import constants, constants_outside, inner_graph, region_names
from aotpack.export.ir.rewriter import fake_mode
from aotpack.export.torch_compat.export import set_input_specs


def lift_inner_constants(exported: ExportedProgram) -> None:
    """Changes the program so that graphs inside hold no tensors."""
    if not region_names(exported.graph_module):
        return
    module = constants_outside(exported.graph_module)
    specs = list(exported.graph_signature.input_specs)
    placeholders = module.graph.find_nodes(op="placeholder")
    held = list(constants(module))
    taken = {*exported.constants, *exported.state_dict, *(node.name for node in module.graph.nodes)}
    mode = fake_mode(exported.graph_module)
    for node in held:
        name = str(node.target)
        while name in taken:
            name += "_"
        taken.add(name)
        tensor = getattr(module, str(node.target)).detach()
        with module.graph.inserting_before(placeholders[0]):
            placeholder = module.graph.placeholder(name)
        placeholder.meta["val"] = mode.from_tensor(tensor, static_shapes=True)
        node.replace_all_uses_with(placeholder)
        module.graph.erase_node(node)
        exported.constants[name] = tensor
        specs.insert(0, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(placeholder.name), name))
        placeholders.insert(0, placeholder)
    for name in region_names(module):
        setattr(exported.graph_module, name, inner_graph(module, name))
    exported.graph_module.graph = module.graph
    exported.graph_module.recompile()
    set_input_specs(exported, specs)
