"""Edits a program's graph; shared by all passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_arg

from aotpack.export.ir import origins, regions
from aotpack.export.ir.descriptions import Descriptions
from aotpack.export.ir.program import Change, ConstantInfo, PassReport, Program, Recipe, get_attribute, identity
from aotpack.export.torch_compat.dispatch import enable_python_dispatcher
from aotpack.export.torch_compat.fake_tensors import FakeTensor, FakeTensorMode
from aotpack.export.torch_compat.graphs import is_erased
from aotpack.export.torch_compat.operators import OpOverload, operator_schema

aten = torch.ops.aten


def as_node(value: object) -> torch.fx.Node:
    """The node that an argument of a call must be.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(value, torch.fx.Node):
        raise TypeError(f"expected a node of the graph, got a {type(value).__name__}")
    return value


def schema_of(node: torch.fx.Node) -> Any:
    """The schema of the operator that a node calls.

    Raises:
        TypeError: it calls no operator.
    """
    if not isinstance(node.target, OpOverload):
        raise TypeError(f"{node.name} calls no operator but {node.target}")
    return operator_schema(node.target)


def operator_name(node: torch.fx.Node) -> str:
    """`aten.linear` for a call of an operator; the name of the function for others."""
    if isinstance(node.target, OpOverload):
        return str(node.target.overloadpacket)
    return getattr(node.target, "__name__", str(node.target))


# Where a node is in the source model: the line, the modules around it, and in a joint graph the call of the forward
# that it is or derives (tracing/sequences.py).
PLACE = ("stack_trace", "nn_module_stack", "source_fn_stack", "sequence", "backward_of")


def take_place(made: torch.fx.Node, of: torch.fx.Node) -> None:
    """Has a new node be where another one is in the source model."""
    for key in PLACE:
        if key in of.meta:
            made.meta[key] = of.meta[key]


def ancestors(roots: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes and all that they depend on."""
    pending, found = list(roots), set[torch.fx.Node]()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


class Rewriter:
    """A graph under change in one pass. New nodes carry fake tensors, as all nodes of a Program do.

    The program's own graph stays as it is. It is copied when a pass asks for the graph, which those do not that find
    none of their operators.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.mode = fake_mode(program.graph_module)
        self.constants: dict[str, ConstantInfo] = {}
        self.originals: dict[str, torch.Tensor] = {}
        self.changes: list[Change] = []
        self.changed = 0
        self._descriptions = Descriptions(self.mode)

    @cached_property
    def graph_module(self) -> torch.fx.GraphModule:
        """The copy, over the same tensors."""
        return self.program.editable()

    @property
    def graph(self) -> torch.fx.Graph:
        return self.graph_module.graph

    def nodes(self, *targets: Any) -> Iterator[torch.fx.Node]:
        """The calls of these operators, in order; the graph may change meanwhile."""
        if "graph_module" not in vars(self):
            known = self.program.graph
            if not any(known.find_nodes(op="call_function", target=target, sort=False) for target in targets):
                return
        for node in list(self.graph.nodes):
            if node.op == "call_function" and node.target in targets and not is_erased(node):
                yield node

    def constant(self, node: Any) -> torch.Tensor | None:
        """The fake tensor of a constant that the model never writes; None for any other value.

        Passes see sizes, strides and dtypes of constants, never values: these are computed when the archive is packed.
        """
        if not isinstance(node, torch.fx.Node) or node.op != "get_attr" or regions.is_region(self.graph_module, node):
            return None
        if self.info(str(node.target)).mutated:
            return None
        value: torch.Tensor = node.meta["val"]
        return value

    def identity(self, node: torch.fx.Node) -> object:
        """What constants that are one tensor of the source model have in common; None for a derived constant."""
        attribute = str(node.target)
        if self.info(attribute).recipe is not None:
            return None
        return identity(get_attribute(self.graph_module, attribute))

    def info(self, attribute: str) -> ConstantInfo:
        return self.constants.get(attribute) or self.program.constant_info(attribute)

    def sources(self, *nodes: torch.fx.Node | None) -> tuple[str, ...]:
        """The names in the source model that these constants were made from."""
        names: list[str] = []
        for node in nodes:
            if node is not None:
                names += [n for n in self.info(str(node.target)).sources if n not in names]
        return tuple(names)

    def derive(
        self,
        name: str,
        role: str,
        function: Callable[..., torch.Tensor],
        inputs: Sequence[torch.fx.Node],
        before: torch.fx.Node,
        *,
        exact: bool = True,
    ) -> torch.fx.Node:
        """A new constant that `function` makes of other constants, as a `get_attr` node; see `Recipe`.

        Args:
            name: readable; made unique.
            role: `packed` or `folded`.
            function: of the tensors of `inputs`, in order. Its result is dense.
            inputs: `get_attr` nodes of constants.
            before: where the node goes.
            exact: see `Recipe`.
        """
        attribute = "_" + "".join(c if c.isalnum() else "_" for c in name)
        base, number = attribute, 1
        while hasattr(self.graph_module, attribute) or attribute in self.program.constants:
            number += 1
            attribute = f"{base}_{number}"
        value = self._descriptions.of(function, [node.meta["val"] for node in inputs])
        meta = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        self.graph_module.register_buffer(attribute, meta, persistent=False)
        names = tuple(str(node.target) for node in inputs)
        for source in names:
            if self.info(source).recipe is None and source not in self.program.originals:
                self.originals[source] = get_attribute(self.graph_module, source)
        self.constants[attribute] = ConstantInfo(role, self.sources(*inputs), recipe=Recipe(function, names, exact))
        with self.graph.inserting_before(before):
            node = self.graph.get_attr(attribute)
        node.meta["val"] = value
        return node

    def call(self, op: Any, args: tuple[Any, ...], before: torch.fx.Node, **kwargs: Any) -> torch.fx.Node:
        """A new call in front of `before`, with its place in the source model's code."""
        with self.graph.inserting_before(before):
            node = self.graph.call_function(op, args, kwargs)
        # Without the Python dispatcher some operators read symbolic sizes as numbers, which would fix them.
        with self.mode, torch.no_grad(), enable_python_dispatcher():
            node.meta["val"] = op(*map_arg(args, lambda n: n.meta["val"]), **map_arg(kwargs, lambda n: n.meta["val"]))
        take_place(node, before)
        return node

    def replace(self, node: torch.fx.Node, by: torch.fx.Node) -> None:
        """All uses of `node` become uses of `by`; `node` goes."""
        node.replace_all_uses_with(by)
        origins.replaced(node, by)
        self.graph.erase_node(node)
        self.changed += 1

    def report(self, node: torch.fx.Node, note: str) -> None:
        """Records a change at the layer of the source model that `node` comes from."""
        self.changes.append(Change(layer_of(node), note))

    def remove_dead_code(self) -> None:
        """Calls without readers go; assertions, bounds of sizes and writes stay.

        `Graph.eliminate_dead_code` checks the whole graph before, which the runner of passes does once for each.
        """
        for node in reversed(self.graph.nodes):
            if not node.users and not is_impure(node):
                self.graph.erase_node(node)
        for inner in self.graph_module.children():
            if isinstance(inner, torch.fx.GraphModule):
                inner.graph.eliminate_dead_code()
                inner.recompile()

    def finish(self, name: str, summary: str) -> Program:
        """The changed program with what was reported; the old one when nothing was changed."""
        if not self.changed:
            return self.program
        self.remove_dead_code()
        self.graph_module.recompile()
        program = self.program.with_graph(self.graph_module, self.constants, self.originals)
        return program.with_report(PassReport(name, summary, tuple(self.changes)))


def layer_of(node: torch.fx.Node) -> str:
    """The path of the innermost module of the source model that a node was traced in; "" for the top."""
    return next(reversed(modules_around(node)), "")


# What torch.export puts there for nodes that it adds itself.
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"


def modules_around(node: torch.fx.Node) -> dict[str, str]:
    """The modules of the source model that a node was traced in, from the outermost: path → name of the class."""
    found = {}
    for path, kind in (node.meta.get("nn_module_stack") or {}).values():
        if path != _NO_MODULE:
            name = kind if isinstance(kind, str) else getattr(kind, "__qualname__", str(kind))
            found[path.removeprefix("L['self'].").removeprefix("L['self']")] = name.rpartition(".")[2]
    return found


def fake_mode(graph_module: torch.fx.GraphModule) -> FakeTensorMode:
    """The fake mode of the program's values; a fresh one for a graph without any tensor."""
    symbols = None
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, FakeTensor):
            return value.fake_mode
        if isinstance(value, torch.SymInt):
            symbols = value.node.shape_env
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=symbols)


def bound_arguments(node: torch.fx.Node) -> dict[str, Any]:
    """All arguments of a call by the schema's names, defaults filled in."""
    schema = schema_of(node)
    arguments: dict[str, Any] = {}
    for position, argument in enumerate(schema.arguments):
        if position < len(node.args):
            arguments[argument.name] = node.args[position]
        elif argument.name in node.kwargs:
            arguments[argument.name] = node.kwargs[argument.name]
        else:
            arguments[argument.name] = argument.default_value if argument.has_default_value() else None
    return arguments


def shape_of(node: torch.fx.Node) -> Any:
    return node.meta["val"].shape


def dtype_of(node: torch.fx.Node) -> torch.dtype:
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor of known sizes fills its memory without holes or overlaps, in whatever order of its dims."""
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda d: (-strides[d], d))
    return tensor.permute(order).is_contiguous()


def same_shape(a: torch.fx.Node, b: torch.fx.Node) -> bool:
    """Whether sizes are equal by their expressions; never adds a guard."""
    return same_sizes(shape_of(a), shape_of(b))


def same_strides(a: torch.fx.Node, b: torch.fx.Node) -> bool:
    """Whether strides are equal by their expressions; never adds a guard."""
    return same_sizes(a.meta["val"].stride(), b.meta["val"].stride())


def has_order(value: torch.Tensor, order: Sequence[int]) -> bool:
    """Whether the strides are those of a dense tensor whose dims lie in this order, from outermost to innermost.

    Sizes are compared by their expressions: unlike `Tensor.is_contiguous`, this never adds a guard, and it answers for
    sizes that come out of the data.
    """
    step: int | torch.SymInt = 1
    # For sizes that may be 0, torch writes strides with max(1, size): the same wherever there is an element.
    padded: int | torch.SymInt = 1
    for d in reversed(order):
        size, stride = value.shape[d], value.stride(d)
        if isinstance(size, int) and size == 1:
            continue
        if str(stride) not in (str(step), str(padded)):
            return False
        step = step * size
        padded = padded * (max(1, size) if isinstance(size, int) else torch.sym_max(1, size))
    return True


def is_contiguous(value: torch.Tensor) -> bool:
    """Whether a tensor is row-major for all of its sizes; never adds a guard."""
    return has_order(value, range(value.dim()))


def same_sizes(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether sizes, or strides, are equal by their expressions; never adds a guard."""
    from aotpack.export.symbolic_shapes.dims import expression

    return len(first) == len(second) and all(expression(x) == expression(y) for x, y in zip(first, second, strict=True))


def is_impure(node: torch.fx.Node) -> bool:
    """Whether a node stays where nothing reads it: assertions, bounds of sizes, writes."""
    if node.op in ("placeholder", "output"):
        return True
    if isinstance(node.target, OpOverload):
        # Assertions, also those of data-dependent sizes, and mutations have no users and must stay.
        name = operator_schema(node.target).name
        kept = ("assert", "sym_constrain", "check_errors")
        return operator_schema(node.target).is_mutable or any(part in name for part in kept)
    return node.is_impure()
