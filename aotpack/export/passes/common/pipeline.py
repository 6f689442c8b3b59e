"""The passes that are valid on every device, in the order in which they run, each with the reason for its place."""

from __future__ import annotations

from aotpack.export.passes.common.batch_norm import fold_batch_norm
from aotpack.export.passes.common.canonicalize import canonicalize
from aotpack.export.passes.common.convolution_backward import lower_convolution_backward
from aotpack.export.passes.common.dropout import remove_dropout
from aotpack.export.passes.common.flat_products import unflatten_products
from aotpack.export.passes.common.fold_constants import fold_constants
from aotpack.export.passes.common.fuse_linears import fuse_linears
from aotpack.export.passes.common.gates import recompose_gates
from aotpack.export.passes.common.gelu import recompose_gelu
from aotpack.export.passes.common.linalg_transposes import settle_factors
from aotpack.export.passes.common.lower_packed_weights import lower_packed_weights
from aotpack.export.passes.common.noops import remove_noops
from aotpack.export.passes.common.norm_scales import scale_batch_norm
from aotpack.export.passes.common.padding import fold_padding
from aotpack.export.passes.common.scales import fold_scales
from aotpack.export.passes.common.slices import cut_at_bounds
from aotpack.export.passes.common.tied import merge_tied
from aotpack.export.passes.runner import Pass

COMMON: tuple[Pass, ...] = (
    # First: all others read arguments and readers.
    Pass(canonicalize),
    # While strides are those that the backwards were traced with.
    Pass(settle_factors, always=True),
    # Patterns are not interrupted by calls without effect, to which removed dropouts add none.
    Pass(remove_dropout),
    Pass(remove_noops),
    # Before anything asks whether two uses share a weight.
    Pass(merge_tied),
    # Weights that torch packed are arithmetic for all that follows, which neither they nor code generation know.
    Pass(lower_packed_weights, always=True),
    # Casts and transpositions of weights become weights, which the packing passes look for.
    Pass(fold_constants),
    # Weights that were cast are constants now, so that those of backward convolutions are packed like any other.
    Pass(lower_convolution_backward, always=True),
    # What models spell out becomes the operator: padded convolutions, linears over sequences, activations.
    Pass(fold_padding),
    Pass(unflatten_products),
    Pass(recompose_gelu),
    Pass(recompose_gates),
    # While convolutions are still torch's and their weights plain.
    Pass(fold_batch_norm),
    # The norms that are left behind values of other kinds, or behind convolutions that something else reads too.
    Pass(scale_batch_norm),
    # The scales of the model itself, and those of norms that a chain of others separates from their convolution.
    Pass(fold_scales),
    # Weights and biases have their final values.
    Pass(fuse_linears),
    # Last: the others know slices.
    Pass(cut_at_bounds, always=True),
)
