"""The effect of each operator on the layouts of its operands.

A kernel that TorchInductor generates writes its result in the order in which most of what it reads lies, so results
follow operands whose orders agree. The exceptions have kinds of their own. Operators that are not listed here want
their operands contiguous, which is right of any, if not always best.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from aotpack.export import ops
from aotpack.export.ir.rewriter import bound_arguments, same_shape
from aotpack.export.passes.cpu.layouts.orders import DimMap, Regroup, channels_last, contiguous, order_of
from aotpack.export.passes.cpu.layouts.rules import Demand, Flow, Kind, Need, Rule, tensor_of
from aotpack.export.torch_compat.operators import OpOverload

aten = torch.ops.aten

# kThinChannels in csrc/kernels/conv.cpp.
THIN = 16
# Channels whose bytes are put side by side by whole vectors: interleave in csrc/kernels/transpose_copy.cpp.
_FEW = 4

# Ranks of packed weights (aotpack/export/ops/weight_packing.py).
_PANELS, _DEPTHWISE = 5, 2


def rule_of(node: torch.fx.Node) -> Rule:
    """The rule for a node of a graph."""
    if node.op == "output":
        return Rule(Kind.FIXED)
    if node.op != "call_function" or tensor_of(node) is None:
        return Rule(Kind.FIXED, demands=() if node.target in _BLIND else _contiguous_operands(node))
    handler = _HANDLERS.get(node.target)
    if handler is not None:
        return handler(node)
    if isinstance(node.target, OpOverload) and torch.Tag.pointwise in node.target.tags:
        return _pointwise(node)
    return Rule(Kind.FIXED, demands=_contiguous_operands(node))


# ---- relations ------------------------------------------------------------------------------------------------------


def _sizes(node: object) -> tuple[Any, ...]:
    value = tensor_of(node)
    return () if value is None else tuple(value.shape)


def _map(node: torch.fx.Node, source: object, dims: Sequence[int | None]) -> tuple[Flow, ...]:
    if not isinstance(source, torch.fx.Node) or tensor_of(source) is None:
        return ()
    return (Flow(source, DimMap(tuple(dims), _sizes(source), _sizes(node))),)


def _same_dims(node: torch.fx.Node, source: object) -> tuple[Flow, ...]:
    """The operand's dims are the result's last ones."""
    lead = len(_sizes(node)) - len(_sizes(source))
    return _map(node, source, [None if d < lead else d - lead for d in range(len(_sizes(node)))])


def _tensor_operands(node: torch.fx.Node) -> list[torch.fx.Node]:
    return [source for source in dict.fromkeys(node.all_input_nodes) if tensor_of(source) is not None]


def _contiguous_operands(node: torch.fx.Node) -> tuple[Demand, ...]:
    return tuple(Demand(source, contiguous(len(_sizes(source)))) for source in _tensor_operands(node))


def _argument(node: torch.fx.Node, position: int) -> Any:
    """An argument by its place in the operator's schema, however it was given."""
    return list(bound_arguments(node).values())[position]


def _dim(value: int, rank: int) -> int:
    return value % rank if rank else 0


# ---- handlers -------------------------------------------------------------------------------------------------------

Handler = Callable[[torch.fx.Node], Rule]


def _pointwise(node: torch.fx.Node) -> Rule:
    return Rule(Kind.POINTWISE, tuple(flow for source in _tensor_operands(node) for flow in _same_dims(node, source)))


def _prelu(node: torch.fx.Node) -> Rule:
    # The weight lies along dim 1: no layout of it matters.
    return Rule(Kind.POINTWISE, _same_dims(node, _argument(node, 0)))


def _first(kind: Kind) -> Handler:
    """The result has the dims of the first operand; further ones (statistics, affine weights) have one dim each."""

    def handle(node: torch.fx.Node) -> Rule:
        return Rule(kind, _same_dims(node, _argument(node, 0)))

    return handle


def _reduction(node: torch.fx.Node) -> Rule:
    arguments = bound_arguments(node)
    source = _argument(node, 0)
    rank = len(_sizes(source))
    dims = arguments.get("dim")
    reduced = range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    gone = {_dim(d, rank) for d in reduced}
    if arguments.get("keepdim"):
        return Rule(Kind.FOLLOWS, _map(node, source, list(range(rank))))
    return Rule(Kind.FOLLOWS, _map(node, source, [d for d in range(rank) if d not in gone]))


def _cat(node: torch.fx.Node) -> Rule:
    parts = _argument(node, 0)
    rank = len(_sizes(node))
    # aten.cat takes empty tensors of rank 1 beside others.
    return Rule(Kind.CAT, tuple(f for part in parts if len(_sizes(part)) == rank for f in _same_dims(node, part)))


def _getitem(node: torch.fx.Node) -> Rule:
    source = node.args[0]
    value: Any = source.meta.get("val") if isinstance(source, torch.fx.Node) else None
    index: Any = node.args[1]
    sizes = tuple(value[index].shape) if isinstance(value[index], torch.Tensor) else ()
    if len(sizes) != len(_sizes(source)):
        return Rule(Kind.FIXED)  # a statistic, of whatever layout
    return Rule(Kind.VIEW, _same_dims(node, source))


def _permutation(node: torch.fx.Node) -> Rule:
    """Any operator that permutes dims: what it does to a tensor whose strides tell its dims apart."""
    source, *rest = bound_arguments(node).values()
    rank = len(_sizes(source))
    probe = torch.empty_strided([2] * rank, [2 ** (rank - 1 - d) for d in range(rank)], device="meta")
    target: Any = node.target
    strides = [int(stride) for stride in target(probe, *rest).stride()]
    return Rule(Kind.VIEW, _map(node, source, [rank - stride.bit_length() for stride in strides]))


def _unsqueeze(node: torch.fx.Node) -> Rule:
    rank = len(_sizes(node))
    new = _dim(bound_arguments(node)["dim"], rank)
    return Rule(Kind.VIEW, _map(node, _argument(node, 0), [None if d == new else d - (d > new) for d in range(rank)]))


def _select(node: torch.fx.Node) -> Rule:
    rank = len(_sizes(_argument(node, 0)))
    gone = _dim(bound_arguments(node)["dim"], rank)
    return Rule(Kind.VIEW, _map(node, _argument(node, 0), [d for d in range(rank) if d != gone]), cut=(gone,))


def _part(node: torch.fx.Node) -> Rule:
    """slice and split: parts along a dim."""
    dim = _dim(bound_arguments(node)["dim"], len(_sizes(_argument(node, 0))))
    return Rule(Kind.VIEW, _same_dims(node, _argument(node, 0)), cut=(dim,))


def _expand(node: torch.fx.Node) -> Rule:
    source = _argument(node, 0)
    return Rule(Kind.VIEW, _same_dims(node, source), loose=not same_shape(node, source))


def _reshape(node: torch.fx.Node) -> Rule:
    source = _argument(node, 0)
    if not isinstance(source, torch.fx.Node) or tensor_of(source) is None:
        return Rule(Kind.FIXED)
    return Rule(Kind.VIEW, (Flow(source, Regroup.between(_sizes(source), _sizes(node))),))


def _clone(node: torch.fx.Node) -> Rule:
    if any(user.target in _STRIDED for user in node.users):
        return Rule(Kind.FIXED)  # there so that strides are known
    return _pointwise(node)


def _slice_scatter(node: torch.fx.Node) -> Rule:
    return Rule(Kind.POINTWISE, _same_dims(node, _argument(node, 0)) + _same_dims(node, _argument(node, 1)))


def _select_scatter(node: torch.fx.Node) -> Rule:
    rank = len(_sizes(node))
    gone = _dim(bound_arguments(node)["dim"], rank)
    part = _map(node, _argument(node, 1), [None if d == gone else d - (d > gone) for d in range(rank)])
    return Rule(Kind.POINTWISE, _same_dims(node, _argument(node, 0)) + part)


def _copy(node: torch.fx.Node) -> Rule:
    return Rule(Kind.POINTWISE, _same_dims(node, _argument(node, 1)))


def _packed_conv(node: torch.fx.Node) -> Rule:
    arguments = bound_arguments(node)
    order = channels_last(len(_sizes(node)))
    wants = {arguments["x"]: Need.EVEN if _reads_strided(node, arguments) else Need.DENSE}
    if _reads_planes(node, arguments):
        del wants[arguments["x"]]
    if isinstance(arguments["residual"], torch.fx.Node):
        wants[arguments["residual"]] = Need.DENSE
    return Rule(Kind.FIXED, demands=tuple(Demand(source, order, need) for source, need in wants.items()))


def _reads_strided(node: torch.fx.Node, arguments: dict[str, Any]) -> bool:
    """Whether the kernel reads some channels of a tensor where they lie: takes_strided in csrc/kernels/conv.cpp."""
    if node.target is not ops.packed_conv:
        return False
    rank = len(_sizes(arguments["weight"]))
    if rank != _PANELS:
        return rank == _DEPTHWISE
    value = tensor_of(node)
    if value is not None and value.dtype is torch.float32 and not _is_merged(arguments):
        return True
    once = (*arguments["kernel"], *arguments["stride"], arguments["groups"])
    return all(number == 1 for number in once) and not any(arguments["padding"]) and not arguments["transposed"]


def _reads_planes(node: torch.fx.Node, arguments: dict[str, Any]) -> bool:
    """Whether a contiguous input is as good: takes_planar in csrc/kernels/conv.cpp, or a few channels of bytes.

    Their producers store whole vectors then, and the copy that puts the channels side by side takes a tenth of what
    storing them so would.
    """
    if node.target is ops.int8_conv:
        return _is_merged(arguments) and _sizes(arguments["x"])[1] <= _FEW
    packed = _sizes(arguments["weight"])
    transformed = len(packed) == _PANELS and list(arguments["kernel"]) == [3, 3] and packed[2] == 16
    return _is_merged(arguments) and not transformed and len(packed) == _PANELS


def _is_merged(arguments: dict[str, Any]) -> bool:
    """Whether few channels are copied into rows of pixels."""
    channels = _sizes(arguments["x"])[1]
    return (
        isinstance(channels, int)
        and channels <= THIN
        and arguments["groups"] == 1
        and not arguments.get("transposed")
        and arguments["kernel"][-1] > 1
        and arguments["dilation"][-1] == 1
    )


def _interleave(node: torch.fx.Node) -> Rule:
    order = channels_last(len(_sizes(node)))
    return Rule(Kind.FIXED, demands=tuple(Demand(part, order, Need.EVEN) for part in _argument(node, 0)))


def _max_pool(node: torch.fx.Node) -> Rule:
    x = _argument(node, 0)
    return Rule(Kind.FIXED, demands=(Demand(x, channels_last(len(_sizes(x))), Need.EVEN),))


def channels_last_calls(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The calls that read and write channels-last."""
    return [
        node
        for target in (ops.packed_conv, ops.int8_conv, ops.interleave, ops.max_pool)
        for node in graph.find_nodes(op="call_function", target=target)
    ]


def _attention(node: torch.fx.Node) -> Rule:
    demands = [Demand(s, contiguous(len(_sizes(s))), Need.ROWS) for s in _tensor_operands(node)]
    return Rule(Kind.FIXED, demands=tuple(demands))


def _as_strided(node: torch.fx.Node) -> Rule:
    source = _argument(node, 0)
    value = tensor_of(source)
    if not isinstance(source, torch.fx.Node) or value is None:
        return Rule(Kind.FIXED)
    return Rule(Kind.FIXED, demands=(Demand(source, order_of(value), Need.EXACT),))


def _fixed(node: torch.fx.Node) -> Rule:
    return Rule(Kind.FIXED)


_STRIDED = (aten.as_strided.default,)
# Read nothing of a tensor's memory.
_BLIND = (aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default, aten.sym_storage_offset.default)

_HANDLERS: dict[Any, Handler] = {
    operator.getitem: _getitem,
    ops.packed_conv: _packed_conv,
    ops.int8_conv: _packed_conv,
    ops.interleave: _interleave,
    ops.max_pool: _max_pool,
    ops.attention: _attention,
    ops.to_layout: _fixed,
    aten.as_strided.default: _as_strided,
    aten.cat.default: _cat,
    aten.prelu.default: _prelu,
    aten._prelu_kernel.default: _prelu,
    aten.clone.default: _clone,
    aten.contiguous.default: _clone,
    aten.slice_scatter.default: _slice_scatter,
    aten.select_scatter.default: _select_scatter,
    aten.copy.default: _copy,
    aten.unsqueeze.default: _unsqueeze,
    aten.select.int: _select,
    aten.slice.Tensor: _part,
    aten.split.Tensor: _part,
    aten.split_with_sizes.default: _part,
    aten.chunk.default: _part,
    aten.narrow.default: _part,
    aten.unbind.int: _select,
    aten.expand.default: _expand,
}
_HANDLERS |= dict.fromkeys(
    (
        aten.permute.default,
        aten.transpose.int,
        aten.t.default,
        aten.movedim.int,
        aten.movedim.intlist,
        aten.moveaxis.int,
        aten.moveaxis.intlist,
        aten.swapaxes.default,
        aten.swapdims.default,
        aten.numpy_T.default,
        aten.mT.default,
    ),
    _permutation,
)
_HANDLERS |= dict.fromkeys(
    (
        aten.to.dtype,
        aten._to_copy.default,
        aten.hardswish.default,
        aten.relu6.default,
        aten.type_as.default,
        aten.dropout.default,
        aten.flip.default,
        aten.roll.default,
        aten.where.ScalarOther,
        aten.where.ScalarSelf,
        aten.where.Scalar,
    ),
    _pointwise,
)
_HANDLERS |= dict.fromkeys(
    (
        aten.view.default,
        aten.reshape.default,
        aten._unsafe_view.default,
        aten.flatten.using_ints,
        aten.unflatten.int,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
    ),
    _reshape,
)
_HANDLERS |= dict.fromkeys(
    (
        aten.mean.dim,
        aten.mean.default,
        aten.sum.dim_IntList,
        aten.sum.default,
        aten.amax.default,
        aten.amin.default,
        aten.max.dim,
        aten.min.dim,
        aten.var.correction,
        aten.var_mean.correction,
        aten.std.correction,
        aten.prod.dim_int,
        aten.linalg_vector_norm.default,
        aten.logsumexp.default,
        aten.argmax.default,
        aten.argmin.default,
        aten.any.dim,
        aten.all.dim,
    ),
    _reduction,
)
_HANDLERS |= dict.fromkeys(
    (
        aten.max_pool1d.default,
        aten.max_pool2d.default,
        aten.max_pool3d.default,
        aten.max_pool2d_with_indices.default,
        aten.max_pool3d_with_indices.default,
        aten.avg_pool1d.default,
        aten.avg_pool2d.default,
        aten.avg_pool3d.default,
        aten.adaptive_avg_pool1d.default,
        aten.adaptive_avg_pool2d.default,
        aten._adaptive_avg_pool2d.default,
        aten.adaptive_avg_pool3d.default,
        aten.adaptive_max_pool2d.default,
        aten.batch_norm.default,
        aten._native_batch_norm_legit_no_training.default,
        aten.native_batch_norm.default,
        aten.layer_norm.default,
        aten.native_layer_norm.default,
        aten.rms_norm.default,
        aten.softmax.int,
        aten._softmax.default,
        aten.log_softmax.int,
        aten._log_softmax.default,
    ),
    _first(Kind.FOLLOWS),
)
# One element is read for each that is written.
_HANDLERS |= dict.fromkeys(
    (
        aten.constant_pad_nd.default,
        aten.pad.default,
        aten.reflection_pad1d.default,
        aten.reflection_pad2d.default,
        aten.reflection_pad3d.default,
        aten.replication_pad1d.default,
        aten.replication_pad2d.default,
        aten.replication_pad3d.default,
    ),
    _first(Kind.POINTWISE),
)
_HANDLERS |= dict.fromkeys(
    (
        aten.upsample_nearest1d.vec,
        aten.upsample_nearest1d.default,
        aten.upsample_nearest2d.vec,
        aten.upsample_nearest2d.default,
        aten.upsample_nearest3d.vec,
        aten.upsample_nearest3d.default,
        aten._upsample_nearest_exact2d.vec,
        aten._upsample_nearest_exact2d.default,
        aten.upsample_linear1d.vec,
        aten.upsample_linear1d.default,
        aten.upsample_bilinear2d.vec,
        aten.upsample_bilinear2d.default,
        aten.upsample_trilinear3d.vec,
        aten.upsample_trilinear3d.default,
        aten.upsample_bicubic2d.vec,
        aten.upsample_bicubic2d.default,
        aten._upsample_bilinear2d_aa.vec,
        aten.group_norm.default,
        aten.native_group_norm.default,
        aten.instance_norm.default,
    ),
    _first(Kind.STUBBORN),
)
