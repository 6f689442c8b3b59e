"""Folds a batch norm with running statistics into the convolution or linear before it.

y = (conv(x) - mean) * gamma / sqrt(var + eps) + beta is conv with weights scaled per output channel. The arithmetic is
done in double and rounded once, to the convolution's own dtype (M. Jacob et al. 2017, section 3.2, states the same
folding).
"""

from __future__ import annotations

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
        mean, var = editor.constant(arguments["running_mean"]), editor.constant(arguments["running_var"])
        conv = bound_arguments(source)
        weight, bias = editor.constant(conv["weight"]), editor.constant(conv["bias"])
        if weight is None or len(shape_of(source)) != weight.dim():
            continue  # unbatched, or a linear over sequences: the norm's channels are not the weight's outputs
        gamma, beta = editor.constant(arguments["weight"]), editor.constant(arguments["bias"])
        unknown = [arguments[key] is not None and value is None for key, value in (("weight", gamma), ("bias", beta))]
        if mean is None or var is None or any(unknown) or (conv["bias"] is not None and bias is None):
            continue
        scale = torch.rsqrt(var.double() + arguments["eps"])
        if gamma is not None:
            scale = scale * gamma.double()
        shift = (torch.zeros_like(mean) if bias is None else bias).double() - mean.double()
        new_bias = shift * scale
        if beta is not None:
            new_bias = new_bias + beta.double()
        new_weight = _scale_outputs(weight.double(), scale, _FOLDED_INTO[source.target], conv.get("groups", 1))
        sources = editor.sources(
            *(n for n in (conv["weight"], conv["bias"], arguments["weight"], arguments["bias"]) if n is not None),
            arguments["running_mean"],
            arguments["running_var"],
        )
        name = str(conv["weight"].target)
        conv["weight"] = editor.add_constant(new_weight.to(weight.dtype), f"{name}_bn", "folded", sources, node)
        conv["bias"] = editor.add_constant(new_bias.to(weight.dtype), f"{name}_bn_bias", "folded", sources, node)
        folded = editor.call(source.target, tuple(conv.values()), node)
        if node.target is aten.batch_norm.default:
            editor.replace(node, folded)
        else:
            # The functional form returns (output, saved mean, saved rstd); only the output is read at inference.
            for user in list(node.users):
                editor.replace(user, folded)
    return editor.finish("batch_norm", f"folded {editor.changed} batch norms into the weights before them")


def _scale_outputs(weight: torch.Tensor, scale: torch.Tensor, transposed: bool, groups: int) -> torch.Tensor:
    if not transposed:
        return weight * scale.reshape(-1, *([1] * (weight.dim() - 1)))
    # [c, oc/groups, ...]: output channel of group g is at dim 1.
    per_group = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    factors = scale.reshape(groups, 1, weight.shape[1], *([1] * (weight.dim() - 2)))
    return (per_group * factors).reshape(weight.shape)
