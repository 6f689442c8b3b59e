"""Chooses the layout of every activation of a program with convolutions, so that least memory is moved.

Our convolutions read and write channels-last; inputs, results and some operators have orders of their own; all else
runs in any. Each activation gets one of two orders, the one that contiguous neighbours would give it or the one that
channels-last neighbours would, by a minimum cut over the whole graph. What a cut costs:

* an activation that is brought into its other order is read and written once more, for all of its readers together;
* a pointwise loop that writes in another order than it reads strides through its memory (`_STRIDED`);
* constants are re-laid when the archive is packed, which costs nothing.

`aotpack::to_layout` then stands at the cut edges, and nowhere else does a kernel convert. Where it has the only use of
what a generated loop makes, that loop writes in its order and there is no copy (torch_compat/inductor/layout.py).
"""

from __future__ import annotations

from functools import partial

import torch
import torch.fx

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, as_node, bound_arguments, shape_of, take_place
from aotpack.export.passes.cpu.layouts.model import DENSITY_OF, Layout, LayoutModel
from aotpack.export.passes.cpu.layouts.operators import channels_last_calls
from aotpack.export.passes.cpu.layouts.orders import Order, channels_last, contiguous, same_order
from aotpack.export.passes.cpu.layouts.rules import Demand, Flow, Kind, Need, density_of_view, tensor_of

aten = torch.ops.aten


def assign_layouts(program: Program) -> Program:
    """Brings each activation into the layout that its readers want, at most once and where that is cheapest."""
    if not channels_last_calls(program.graph):
        return program
    rewriter = Rewriter(program)
    model = LayoutModel(rewriter.graph, program.signature, free=lambda node: rewriter.constant(node) is not None)
    model.solve()
    writer = _Writer(rewriter, model)
    for node in list(rewriter.graph.nodes):
        writer.visit(node)
    return rewriter.finish(
        "assign-layouts", f"{writer.copies} copies into other layouts, {writer.pins} loops that write in one"
    )


class _Writer:
    """Carries an assignment out, node by node, and keeps account of how each value then lies."""

    def __init__(self, rewriter: Rewriter, model: LayoutModel) -> None:
        self.rewriter = rewriter
        self.model = model
        self.copies = 0
        self.pins = 0
        self._layouts: dict[torch.fx.Node, Layout] = {}
        self._converted: dict[tuple[torch.fx.Node, Order], torch.fx.Node] = {}

    def visit(self, node: torch.fx.Node) -> None:
        """Converts what a node reads, and settles how its result lies."""
        rule = self.model.rules[node]
        for flow in rule.flows:
            self._follow(node, flow)
        for demand in rule.demands:
            self._meet(node, demand)
        if tensor_of(node) is None:
            return
        if rule.kind is Kind.VIEW and rule.flows:
            self._layouts[node] = self._view(node, rule.flows[0])
            return
        order = self.model.order(node)
        self._layouts[node] = Layout(order, self.model.own_density(node))
        sizes = tensor_of(node).shape  # type: ignore[union-attr]
        plain = same_order(order, contiguous(len(order)), sizes)
        if rule.kind is Kind.CAT and not plain:
            self._cat_along_memory(node, order)
        elif self.model.turns(node) or (not plain and self._needs_pin(node)):
            self._pin(node, order)

    def _follow(self, node: torch.fx.Node, flow: Flow) -> None:
        pair = self.model.pairs.get(flow.source)
        if pair is None:
            return
        wanted = self.model.read_order(node)
        lies = self._layouts[flow.source].order

        def serves(order: Order) -> bool:
            if wanted is None:
                return flow.relation.forward(order) is not None
            return flow.relation.agree(order, wanted)

        if not serves(lies):
            target = next((order for order in pair if serves(order)), None)
            if target is not None:
                self._convert(node, flow.source, target)

    def _meet(self, node: torch.fx.Node, demand: Demand) -> None:
        source = demand.source
        layout = self._layouts.get(source)
        value = tensor_of(source)
        if layout is None or value is None or (source not in self.model.pairs and demand.need is not Need.EXACT):
            return
        if demand.need is Need.EXACT:
            # What eager's strides were must be so, whatever else changes; a source that we do not lay out has them.
            settled = source.op != "call_function" or source.target in (aten.clone.default, ops.to_layout)
            if not settled and self.model.is_dense(source):
                self._convert(node, source, demand.order)
            return
        if demand.need is Need.ROWS and self.model.has_rows(layout.order, value.shape):
            return
        met = same_order(layout.order, demand.order, value.shape)
        if demand.need in DENSITY_OF:
            met = met and layout.density >= DENSITY_OF[demand.need]
        elif not self.model.can_serve(source, demand):
            return  # an order that neither side thought of: the operator copes by itself
        if not met:
            self._convert(node, source, demand.order)

    def _view(self, node: torch.fx.Node, flow: Flow) -> Layout:
        source = as_node(node.all_input_nodes[0])
        layout = self._layouts[source]
        value = tensor_of(source)
        assert value is not None
        order = flow.relation.forward(layout.order)
        if order is None:  # a reshape that copies
            return Layout(contiguous(tensor_of(node).dim()))  # type: ignore[union-attr]
        return Layout(order, density_of_view(self.model.rules[node], layout.density, layout.order, value.shape))

    def _convert(self, reader: torch.fx.Node, source: torch.fx.Node, order: Order) -> None:
        converted = self._converted.get((source, order))
        if converted is None:
            if self.rewriter.constant(source) is not None:
                recipe = partial(_relaid, order)
                name = f"laid_out_{source.target}"
                converted = self.rewriter.derive(name, "packed", recipe, [source], reader)
            else:
                converted = self.rewriter.call(ops.to_layout, (source, list(order)), reader)
                self.copies += 1
            self._converted[source, order] = converted
            self._layouts[converted] = Layout(order)
            self.rewriter.changed += 1
            self.rewriter.report(source, f"copied {source.name} into {_name(order)}")
        reader.replace_input_with(source, converted)

    def _needs_pin(self, node: torch.fx.Node) -> bool:
        kind = self.model.rules[node].kind
        if kind is Kind.STUBBORN:
            return True
        # Inductor makes what it reads through a view contiguous when the reader is no loop.
        generated = kind in (Kind.POINTWISE, Kind.FOLLOWS)
        return generated and self._reaches_kernel(node)

    def _reaches_kernel(self, node: torch.fx.Node) -> bool:
        views = [user for user in node.users if self.model.rules.get(user) and self.model.rules[user].kind is Kind.VIEW]
        readers = [reader for view in views for reader in view.users if reader in self.model.rules]
        return any(self.model.rules[reader].kind is Kind.FIXED for reader in readers) or any(
            self._reaches_kernel(view) for view in views
        )

    def _pin(self, node: torch.fx.Node, order: Order) -> None:
        """Has the loop write in this order: all its readers read through a conversion that Inductor takes into it."""
        if not isinstance(node.meta["val"], torch.Tensor):
            return
        users = list(node.users)
        pinned = self.rewriter.call(ops.to_layout, (node, list(order)), node.next)
        take_place(pinned, node)
        for user in users:
            user.replace_input_with(node, pinned)
        self._layouts[pinned] = self._layouts[node]
        self.model.rename(node, pinned)
        self.pins += 1
        self.rewriter.changed += 1
        self.rewriter.report(node, f"{node.name} is written in {_name(order)}")

    def _cat_along_memory(self, node: torch.fx.Node, order: Order) -> None:
        """A cat of permuted parts, contiguous as Inductor likes it, and a permuted look at it."""
        parts, dim = bound_arguments(node).values()
        # aten.cat passes over empty tensors of rank 1.
        parts = [part for part in parts if len(shape_of(part)) == len(order)]
        inside = [self.rewriter.call(aten.permute.default, (part, list(order)), node) for part in parts]
        whole = self.rewriter.call(aten.cat.default, (inside, order.index(dim % len(order))), node)
        back = [order.index(d) for d in range(len(order))]
        result = self.rewriter.call(aten.permute.default, (whole, back), node)
        for made in (*inside, whole, result):
            take_place(made, node)
        self._layouts[result] = self._layouts[node]
        self.rewriter.report(node, f"concatenated in {_name(order)}")
        self.rewriter.replace(node, result)
        self.model.rename(node, result)


def _relaid(order: Order, value: torch.Tensor) -> torch.Tensor:
    """The same tensor, which lies in `order`."""
    back = [order.index(d) for d in range(len(order))]
    return value.permute(order).contiguous().permute(back)


def _name(order: Order) -> str:
    if order == contiguous(len(order)):
        return "contiguous layout"
    return "channels-last layout" if len(order) > 2 and order == channels_last(len(order)) else f"the order {order}"
