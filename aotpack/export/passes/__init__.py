"""The passes, in the order that they run, each with the reason for its place."""

from __future__ import annotations

from aotpack.export.passes.batch_norm import fold_batch_norm
from aotpack.export.passes.constants import fold_constants
from aotpack.export.passes.epilogue import fuse_epilogue
from aotpack.export.passes.noops import remove_noops
from aotpack.export.passes.output_layout import keep_output_layout
from aotpack.export.passes.pack_attention import pack_attention
from aotpack.export.passes.pack_conv import pack_conv
from aotpack.export.passes.pack_embedding_bag import pack_embedding_bag
from aotpack.export.passes.pack_linear import pack_linear
from aotpack.export.passes.pack_rnn import pack_rnn
from aotpack.export.passes.reshape import free_views
from aotpack.export.passes.tied import merge_tied
from aotpack.export.runner import Pass

PASSES: tuple[Pass, ...] = (
    # First, so that patterns are not interrupted by calls that compute nothing.
    remove_noops,
    # Before anything asks whether two uses share a weight.
    merge_tied,
    # Casts and transpositions of weights become weights, which the packing passes look for.
    fold_constants,
    # While convolutions are still torch's and their weights plain.
    fold_batch_norm,
    # Packed convolutions change strides: views over them must not depend on strides.
    free_views,
    pack_conv,
    pack_linear,
    pack_embedding_bag,
    pack_attention,
    pack_rnn,
    # After packing: it rewrites arguments of packed operators only.
    fuse_epilogue,
    # Last: it compares the strides of the results with the captured ones.
    keep_output_layout,
)

__all__ = ["PASSES"]
