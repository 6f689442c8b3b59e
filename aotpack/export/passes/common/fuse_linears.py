"""Merges products that share their input: the weights are concatenated, the results are slices of one product.

Query, key and value of an attention layer, gate and up of a gated network: one call reads the input once, shares it
among the threads once, and wastes panels of the packed weight once. The price is that results are slices, with the
stride of the whole. So products are left apart

- whose result something reads that needs it dense: a returned result would be copied;
- whose result takes an addition into the kernel, or an activation, unless all of them take the same one or another
  pointwise kernel reads it anyway;
- whose weight something else reads too: the archive would hold it twice.

The rule behind it, measured in fp32 on query, key, value of 128 and 768 features and on gates of 256 and 1024, with 1,
16 and 128 rows: on one thread fused products take 0.98 to 1.02 of the time of separate ones, 0.9 where they are
tiny; on two threads 0.5 to 1, since small products are not divided well. That pays for no copy of a result.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, same_shape, shape_of
from aotpack.export.passes.patterns.products import PRODUCTS, Product, lies_along, matrix_readers, product_of
from aotpack.export.passes.patterns.slicing import Slicing, is_pointwise, same_value

aten = torch.ops.aten

_ACTIVATIONS = (
    aten.relu.default,
    aten.gelu.default,
    aten.silu.default,
    aten.sigmoid.default,
    aten.tanh.default,
    aten.hardswish.default,
    aten.hardsigmoid.default,
    aten.relu6.default,
    aten.hardtanh.default,
    aten.clamp.default,
)


@dataclass(frozen=True)
class _Member:
    """A product that may become part of another.

    Attributes:
        product: the product.
        activation: the call behind it that goes along with it; None where there is none.
    """

    product: Product
    activation: torch.fx.Node | None

    @property
    def result(self) -> torch.fx.Node:
        return self.activation or self.product.node

    @property
    def key(self) -> tuple[object, ...]:
        """What members of one product have in common."""
        act = self.activation
        function = None if act is None else (act.target, str(act.args[1:]), str(act.kwargs))
        return same_value(self.product.x), dtype_of(self.product.weight), function


def fuse_linears(program: Program) -> Program:
    """Computes products with constant weights that share their input as one."""
    rewriter = Rewriter(program)
    groups: dict[tuple[object, ...], list[_Member]] = {}
    for node in rewriter.nodes(*PRODUCTS):
        member = _member(rewriter, node)
        if member is not None:
            groups.setdefault(member.key, []).append(member)
    products = 0
    for members in groups.values():
        if len(members) > 1 and _fuse(rewriter, members):
            products += 1
    return rewriter.finish("fuse-linears", f"made {products} products of {rewriter.changed}")


def _member(rewriter: Rewriter, node: torch.fx.Node) -> _Member | None:
    product = product_of(rewriter, node)
    if product is None or product.alpha != 1 or product.beta != 1 or matrix_readers(rewriter, product.weight) != 1:
        return None
    rank = len(shape_of(node))
    if product.bias is not None:
        bias = rewriter.constant(product.bias)
        if bias is None or bias.dtype != dtype_of(node) or not lies_along(bias.shape, rank, rank - 1, product.outputs):
            return None
    if len(node.users) != 1:
        return _Member(product, None)
    (user,) = node.users
    if user.target is aten.add.Tensor and _is_residual(user, node):
        return None
    if user.target not in _ACTIVATIONS or all(is_pointwise(reader) for reader in user.users):
        return _Member(product, None)
    return _Member(product, user) if user.all_input_nodes == [node] else None


def _is_residual(node: torch.fx.Node, source: torch.fx.Node) -> bool:
    other = node.args[1] if node.args[0] is source else node.args[0]
    if not isinstance(other, torch.fx.Node) or not isinstance(other.meta.get("val"), torch.Tensor):
        return False
    return same_shape(source, other) and dtype_of(source) == dtype_of(other) and bound_arguments(node)["alpha"] == 1


def _fuse(rewriter: Rewriter, members: Sequence[_Member]) -> bool:
    """One product of those members whose readers can read slices; False if that leaves none to fuse."""
    members = [m for m in members if Slicing(rewriter, m.result, _total(members)).possible]
    if len(members) < 2:
        return False
    slicings = [Slicing(rewriter, member.result, _total(members)) for member in members]
    first = members[0].product.node
    weight, bias = _constants(rewriter, members, first)
    # What the products read may itself have been fused meanwhile.
    read = product_of(rewriter, first)
    assert read is not None
    whole = rewriter.call(aten.linear.default, (read.x, weight, bias), first)
    activation = members[0].activation
    if activation is not None:
        whole = rewriter.call(activation.target, (whole, *activation.args[1:]), first, **activation.kwargs)
    axis = len(shape_of(whole)) - 1
    names = ", ".join(str(member.product.weight.target) for member in members)
    ends = list(itertools.accumulate(member.product.outputs for member in members))
    # All of them in front of the first product, before it goes.
    parts = [
        rewriter.call(aten.slice.Tensor, (whole, axis, end - member.product.outputs, end), first)
        for member, end in zip(members, ends, strict=True)
    ]
    for member, slicing, part in zip(members, slicings, parts, strict=True):
        rewriter.report(member.product.node, f"one product with {names}")
        slicing.commit()
        rewriter.replace(member.result, part)
    return True


def _total(members: Sequence[_Member]) -> int:
    return sum(member.product.outputs for member in members)


def _constants(
    rewriter: Rewriter, members: Sequence[_Member], before: torch.fx.Node
) -> tuple[torch.fx.Node, torch.fx.Node | None]:
    products = [member.product for member in members]
    weights = [product.weight for product in products]
    name = str(weights[0].target).lstrip("_")
    rows = tuple(product.rows for product in products)
    weight = rewriter.derive(f"{name}_and_{len(products) - 1}", "folded", partial(_beside, rows), weights, before)
    present = [product.bias for product in products if product.bias is not None]
    if not present:
        return weight, None
    outputs = tuple((product.outputs, product.bias is not None) for product in products)
    bias = rewriter.derive(f"{name}_and_{len(products) - 1}_bias", "folded", partial(_biases, outputs), present, before)
    return weight, bias


def _beside(rows: Sequence[bool], *weights: torch.Tensor) -> torch.Tensor:
    """[n, k] of all matrices."""
    return torch.cat([weight if lies else weight.t() for weight, lies in zip(weights, rows, strict=True)])


def _biases(outputs: Sequence[tuple[int, bool]], *biases: torch.Tensor) -> torch.Tensor:
    given = iter(biases)
    like = biases[0]
    parts = [
        next(given).reshape(-1).expand(count) if present else like.new_zeros((count,)) for count, present in outputs
    ]
    return torch.cat(parts)
