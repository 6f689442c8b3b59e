"""Folds a batch norm with running statistics into the convolution or linear before it.

y = (conv(x) - mean) * gamma / sqrt(var + eps) + beta is conv with weights scaled per output channel. The arithmetic is
done in double and rounded once, to the convolution's own dtype (M. Jacob et al. 2017, section 3.2, states the same
folding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from aotpack.export.editing import Editor, bound_arguments, shape_of
from aotpack.export.program import Program

aten = torch.ops.aten

# Whether the weight lies as a transposed convolution's.
_FOLDED_INTO = {
    aten.linear.default: False,
    aten.conv1d.default: False,
    aten.conv2d.default: False,
    aten.conv3d.default: False,
    aten.conv1d.padding: False,
    aten.conv2d.padding: False,
    aten.conv3d.padding: False,
    aten.conv_transpose1d.default: True,
    aten.conv_transpose2d.input: True,
    aten.conv_transpose3d.input: True,
}


def fold_batch_norm(program: Program) -> Program:
    """Folds every batch norm over a convolution or linear with constant weights, whose other uses keep it."""
    editor = Editor(program)
    for node in editor.nodes(aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default):
        arguments = bound_arguments(node)
        source = arguments["input"]
        if arguments.get("training") or source.op != "call_function" or source.target not in _FOLDED_INTO:
            continue
        conv = bound_arguments(source)
        weight = editor.constant(conv["weight"])
        if weight is None or len(shape_of(source)) != weight.dim():
            continue  # unbatched, or a linear over sequences: the norm's channels are not the weight's outputs
        statistics = [arguments["running_mean"], arguments["running_var"]]
        optional = [arguments["weight"], arguments["bias"], conv["bias"]]
        if any(editor.constant(value) is None for value in (*statistics, *(v for v in optional if v is not None))):
            continue
        given = [conv["weight"], *statistics, *(value for value in optional if value is not None)]
        arrange = _Arrangement(tuple(value is not None for value in optional), arguments["eps"])
        name = str(conv["weight"].target)
        scaled = partial(_folded_weight, arrange, _FOLDED_INTO[source.target], conv.get("groups", 1))
        conv["weight"] = editor.derive(f"{name}_bn", "folded", scaled, given, node)
        conv["bias"] = editor.derive(f"{name}_bn_bias", "folded", partial(_folded_bias, arrange), given, node)
        folded = editor.call(source.target, tuple(conv.values()), node)
        editor.report(node, f"folded into {name}")
        if node.target is aten.batch_norm.default:
            editor.replace(node, folded)
        else:
            # The functional form returns (output, saved mean, saved rstd); only the output is read at inference.
            for user in list(node.users):
                editor.replace(user, folded)
    return editor.finish("fold-batch-norm", f"folded {editor.changed} batch norms into the weights before them")


@dataclass(frozen=True)
class _Arrangement:
    """How the tensors of a recipe lie: weight, mean, var, then those of gamma, beta and bias that there are."""

    present: tuple[bool, ...]
    eps: float

    def scale_and_shift(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """y = scale * product + shift per channel, in double."""
        _, mean, var, *rest = (tensor.double() for tensor in tensors)
        values = iter(rest)
        gamma, beta, bias = (next(values) if there else None for there in self.present)
        scale = torch.rsqrt(var + self.eps)
        if gamma is not None:
            scale = scale * gamma
        shift = (-mean if bias is None else bias - mean) * scale
        return scale, shift if beta is None else shift + beta


def _folded_weight(arrange: _Arrangement, transposed: bool, groups: int, *tensors: torch.Tensor) -> torch.Tensor:
    weight = tensors[0]
    scale, _ = arrange.scale_and_shift(tensors)
    return _scale_outputs(weight.double(), scale, transposed, groups).to(weight.dtype)


def _folded_bias(arrange: _Arrangement, *tensors: torch.Tensor) -> torch.Tensor:
    return arrange.scale_and_shift(tensors)[1].to(tensors[0].dtype)


def _scale_outputs(weight: torch.Tensor, scale: torch.Tensor, transposed: bool, groups: int) -> torch.Tensor:
    if not transposed:
        return weight * scale.reshape(-1, *([1] * (weight.dim() - 1)))
    # [c, oc/groups, ...]: output channel of group g is at dim 1.
    per_group = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    factors = scale.reshape(groups, 1, weight.shape[1], *([1] * (weight.dim() - 2)))
    return (per_group * factors).reshape(weight.shape)
