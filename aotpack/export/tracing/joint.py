"""The joint graph: forward and backward of an exported program in one flat, functional graph.

AOTAutograd traces the backward of the loss through the exported graph, on fake tensors that share the exported
program's symbolic sizes. Operators are left whole, also those of the backward, so that passes see them; what has no
kernel of its own TorchInductor decomposes later.

`export_joint` traces with AOTAutograd's aot_export_module. The forward and backward of torch.export.experimental has
fixed decompositions and cannot leave out a parameter that the loss does not depend on; aot_export_joint_simple rejects
mutations. The graph of the first trace, which is watched, says of each node, also of the backward, which layer of the
model it comes from; aot_export_module traces that graph once more and loses it.
"""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, SymIntArgument, TensorArgument
from torch.nn.attention import SDPBackend, sdpa_kernel

from aotpack.errors import CaptureError
from aotpack.export.custom_ops.inlining import decompositions
from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.effects import checks_without_tokens
from aotpack.export.torch_compat.export import export_joint
from aotpack.export.torch_compat.fake_tensors import FakeTensor
from aotpack.export.torch_compat.library import triton_operators_kept
from aotpack.export.torch_compat.older_torch import captures_mended
from aotpack.export.torch_compat.onednn import without_onednn
from aotpack.export.torch_compat.patches import always, applied
from aotpack.export.tracing.numbers import NUMBER_DTYPES, constant, number_kind
from aotpack.export.tracing.sequences import OF_AUTOGRAD, number_calls

aten = torch.ops.aten

_ASSIGNMENT = re.compile(r"^\s*(\w+) = [^\n]*\s*\Z", re.MULTILINE)


def joint_graph(
    exported: ExportedProgram, loss: int, parameters: Sequence[torch.Tensor], inputs: Sequence[int]
) -> tuple[torch.fx.GraphModule, dict[int, str]]:
    """The graph of one call and the gradients of its loss.

    Args:
        exported: exported with gradients enabled.
        loss: which of its results is the loss, a floating tensor with one element.
        parameters: parameters of `exported` whose gradients are wanted. The loss must depend on each.
        inputs: positions of user inputs whose gradients are wanted, likewise.

    Returns:
        A flat graph in the form of `functional_graph`: a placeholder per user input, parameters as `get_attr`,
        mutations as `copy_` at the end. It returns the results of `exported`, then the gradients of `parameters`, then
        those of `inputs`, in the given orders. Results that are numbers are tensors of rank 0 there: with the graph
        come their kinds ("int", "float" or "bool"), by position.

    Raises:
        CaptureError: two inputs or buffers are written with one value, which AOTAutograd does not tell apart.
    """
    arguments = _arguments(exported, parameters, inputs)
    forward = _forward(exported, arguments, loss)
    traced = _trace(exported, arguments, forward.graph, forward.returned.index(loss))
    return _assemble(exported, arguments, traced, forward.returned), forward.numbers


@contextlib.contextmanager
def portable_operators() -> Iterator[None]:
    """While active, torch chooses operators whose backward has kernels here over those of one library."""
    with without_onednn(), sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        yield


@dataclass(frozen=True)
class _Arguments:
    """The placeholders of an exported graph as arguments of a trace.

    Attributes:
        specs, values: of each placeholder.
        source: by placeholder, the one that stands for it: itself, or the first that holds the same tensor (tied
            parameters), since AOTAutograd wants each tensor once.
        traced: the placeholders that are arguments: tensors that stand for themselves, and ints that vary.
        wanted: the placeholders whose gradients are wanted, in the order asked for; some perhaps twice.
    """

    specs: Sequence[InputSpec]
    values: Sequence[Any]
    source: Sequence[int]
    traced: Sequence[int]
    wanted: Sequence[int]


def _arguments(exported: ExportedProgram, parameters: Sequence[torch.Tensor], inputs: Sequence[int]) -> _Arguments:
    specs = exported.graph_signature.input_specs
    values = [node.meta["val"] for node in exported.graph.find_nodes(op="placeholder")]
    first: dict[int, int] = {}
    source = []
    for i, spec in enumerate(specs):
        held = exported.state_dict.get(str(spec.target), exported.constants.get(str(spec.target)))
        source.append(i if held is None else first.setdefault(id(held), i))
    users = [i for i, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT]
    return _Arguments(
        specs,
        values,
        source,
        [i for i, s in enumerate(source) if s == i and isinstance(specs[i].arg, (TensorArgument, SymIntArgument))],
        [*(first[id(parameter)] for parameter in parameters), *(users[position] for position in inputs)],
    )


@dataclass(frozen=True)
class _Forward:
    """The exported graph over the traced arguments.

    Attributes:
        returned: which of the results of the exported graph it returns: those that are not constants.
        numbers: the kinds of those that were numbers, which it returns as tensors of rank 0.
    """

    graph: torch.fx.Graph
    returned: list[int]
    numbers: dict[int, str]


def _forward(exported: ExportedProgram, arguments: _Arguments, loss: int) -> _Forward:
    graph = torch.fx.Graph()
    memo: dict[torch.fx.Node, torch.fx.Node] = {}
    copied: Any = graph.graph_copy(exported.graph, memo)
    placeholders = [memo[node] for node in exported.graph.find_nodes(op="placeholder")]
    for i, node in enumerate(placeholders):
        if i in arguments.traced:
            continue
        tied = arguments.source[i] != i
        by: Any = placeholders[arguments.source[i]] if tied else arguments.values[i]
        node.replace_all_uses_with(by)
        graph.erase_node(node)
    # Results may be placeholders that have just been replaced.
    original: Any = exported.graph.output_node().args[0]
    returned: list[int] = []
    numbers: dict[int, str] = {}
    outputs: list[torch.fx.Node] = []
    for position, (value, node) in enumerate(zip(copied, original, strict=True)):
        if not isinstance(value, torch.fx.Node) or constant(node.meta["val"]) is not None:
            continue
        if node.op == "placeholder":
            index = exported.graph.find_nodes(op="placeholder").index(node)
            value = placeholders[arguments.source[index]]
        returned.append(position)
        kind = number_kind(node.meta["val"])
        if kind is not None:
            # AOTAutograd returns tensors alone.
            numbers[position] = kind
            value = graph.call_function(aten.scalar_tensor.default, (value,), {"dtype": NUMBER_DTYPES[kind]})
        elif position != loss:
            # AOTAutograd takes the backward of the loss alone; other results carry no gradient.
            value = graph.call_function(aten.detach.default, (value,))
        outputs.append(value)
    graph.output(tuple(outputs))
    return _Forward(graph, returned, numbers)


@dataclass(frozen=True)
class _Traced:
    """A joint graph: results are one per element of `written`, then those of the forward, then the gradients."""

    module: torch.fx.GraphModule
    written: Sequence[int]


def _trace(exported: ExportedProgram, arguments: _Arguments, forward: torch.fx.Graph, loss: int) -> _Traced:
    module = torch.fx.GraphModule(exported.graph_module, forward)
    values = {i: arguments.values[i] for i in arguments.traced}
    fakes = [
        value.detach().requires_grad_(i in arguments.wanted) if isinstance(value, torch.Tensor) else value
        for i, value in values.items()
    ]
    modes = [fake.fake_mode for fake in fakes if isinstance(fake, FakeTensor)]
    mode = modes[0] if modes else contextlib.nullcontext()
    # AOTAutograd traces with SymInts, but asks each argument at the end whether it wants a gradient.
    no_gradient = applied({places.SYMINT_REQUIRES_GRAD: always(False)})
    with (
        mode,
        torch.enable_grad(),
        portable_operators(),
        _first_traces() as first,
        no_gradient,
        triton_operators_kept(),
        checks_without_tokens(),
        captures_mended(),
    ):
        traced, signature = export_joint(module, fakes, loss=loss, decompositions=decompositions())
    if not isinstance(traced, torch.fx.GraphModule):
        raise CaptureError(f"AOTAutograd produced a {type(traced).__name__}, expected a graph module")
    for graph_module in first:
        _keep_origins(graph_module.graph, traced.graph)
    by_name = dict(zip(signature.user_inputs, arguments.traced, strict=True))
    written = [by_name[name] for name in signature.user_inputs_to_mutate.values()]
    returned: Any = traced.graph.output_node().args[0]
    forward_results: Any = forward.output_node().args[0]
    if len(returned) != len(written) + len(forward_results) + len(set(arguments.wanted)):
        raise CaptureError(
            "the model writes one value to several of its inputs or buffers, which cannot be captured with a backward",
            hint="write a copy of the value, x.clone(), to each",
        )
    return _Traced(traced, written)


@contextlib.contextmanager
def _first_traces() -> Iterator[list[torch.fx.GraphModule]]:
    """The graphs that AOTAutograd traces while active; each is traced once more, without gradients.

    Its arguments require gradients. With these on, the second trace would derive functions of loops again, which no
    longer can be: they are functional.
    """
    found: list[torch.fx.GraphModule] = []

    def watching(original: Any) -> Any:
        def watch(*args: Any, **kwargs: Any) -> Any:
            traced, *others = original(*args, **kwargs)
            if isinstance(traced, torch.fx.GraphModule):
                found.append(traced)
            return (torch.no_grad()(traced.forward), *others)

        return watch

    with applied({places.AOT_EXPORT_FUNCTION: watching}):
        yield found


def _keep_origins(first: torch.fx.Graph, second: torch.fx.Graph) -> None:
    """Copies where each node comes from to the trace of a trace.

    The second trace ran the code of the first, where each line assigns to the name of a node; the stack traces that it
    took end with that line.
    """
    by_name = {node.name: node for node in first.nodes}
    for node in second.nodes:
        line = _ASSIGNMENT.search(node.meta.get("stack_trace") or "")
        source = by_name.get(line[1]) if line is not None else None
        if source is None or (node.target is not operator.getitem and source.target != node.target):
            # The second trace has no backward: what it says of one is of no use.
            for key in OF_AUTOGRAD:
                node.meta.pop(key, None)
            continue
        layers = source.meta.get("nn_module_stack") or source.meta.get("fwd_nn_module_stack") or {}
        node.meta["nn_module_stack"] = layers
        for key in ("stack_trace", *OF_AUTOGRAD):
            if key in source.meta:
                node.meta[key] = source.meta[key]
            else:
                node.meta.pop(key, None)


def _assemble(
    exported: ExportedProgram, arguments: _Arguments, traced: _Traced, returned: Sequence[int]
) -> torch.fx.GraphModule:
    """The traced graph with parameters as attributes, mutations inside, and all results of the exported program."""
    root = exported.module(check_guards=False)
    _add_constants(root, traced.module)
    graph = torch.fx.Graph()
    nodes: dict[int, torch.fx.Node] = {}
    memo: dict[torch.fx.Node, torch.fx.Node] = {}
    placeholders = dict(zip(arguments.traced, traced.module.graph.find_nodes(op="placeholder"), strict=True))
    for i, spec in enumerate(arguments.specs):
        known = placeholders.get(i)
        if spec.kind is InputKind.USER_INPUT:
            nodes[i] = graph.placeholder(spec.arg.name)
        elif known is not None and (known.users or i in traced.written):
            nodes[i] = graph.get_attr(str(spec.target))
        else:
            if known is not None:
                traced.module.graph.erase_node(known)
            continue
        nodes[i].meta["val"] = arguments.values[i]
        if known is not None:
            memo[known] = nodes[i]
    results: Any = graph.graph_copy(traced.module.graph, memo)
    count = len(traced.written)
    for target, value in zip(traced.written, results[:count], strict=True):
        graph.call_function(aten.copy_.default, (nodes[target], value)).meta["val"] = arguments.values[target]
    exported_results: Any = exported.graph.output_node().args[0]
    outputs = [constant(v.meta["val"]) if isinstance(v, torch.fx.Node) else v for v in exported_results]
    for position, value in zip(returned, results[count : count + len(returned)], strict=True):
        outputs[position] = value
    # Gradients come in the order of the arguments.
    gradients = dict(zip(sorted(set(arguments.wanted)), results[count + len(returned) :], strict=True))
    graph.output((*outputs, *(gradients[i] for i in arguments.wanted)))
    number_calls(graph)
    return torch.fx.GraphModule(root, graph)


def _add_constants(root: torch.nn.Module, traced: torch.fx.GraphModule) -> None:
    """Puts constants that tracing made, and subgraphs of control flow, where the assembled graph finds them."""
    for node in traced.graph.find_nodes(op="get_attr"):
        value: Any = getattr(traced, str(node.target))
        if isinstance(value, torch.Tensor):
            root.register_buffer(str(node.target), value, persistent=False)
        else:
            setattr(root, str(node.target), value)
