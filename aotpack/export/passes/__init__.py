"""The passes, in the order that they run, each with the reason for its place."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from aotpack.errors import BuildError
from aotpack.export.passes.batch_norm import fold_batch_norm
from aotpack.export.passes.canonicalize import canonicalize
from aotpack.export.passes.constants import fold_constants
from aotpack.export.passes.convolution_backward import lower_convolution_backward
from aotpack.export.passes.dropout import remove_dropout
from aotpack.export.passes.epilogue import fuse_epilogue
from aotpack.export.passes.flat_products import unflatten_products
from aotpack.export.passes.fuse_linears import fuse_linears
from aotpack.export.passes.gelu import recompose_gelu
from aotpack.export.passes.layout import lay_out
from aotpack.export.passes.linalg_transposes import settle_factors
from aotpack.export.passes.noops import remove_noops
from aotpack.export.passes.norm_scales import scale_batch_norm
from aotpack.export.passes.output_layout import keep_output_layout
from aotpack.export.passes.pack_attention import pack_attention
from aotpack.export.passes.pack_conv import pack_conv
from aotpack.export.passes.pack_embedding_bag import pack_embedding_bag
from aotpack.export.passes.pack_linear import pack_linear
from aotpack.export.passes.pack_rnn import pack_rnn
from aotpack.export.passes.padding import fold_padding
from aotpack.export.passes.reshape import free_views
from aotpack.export.passes.scales import fold_scales
from aotpack.export.passes.tied import merge_tied
from aotpack.export.passes.winograd import use_winograd
from aotpack.export.runner import Pass

PASSES: tuple[Pass, ...] = (
    # First: all others read arguments and readers.
    Pass(canonicalize),
    # While strides are those that the backwards were traced with.
    Pass(settle_factors, always=True),
    # Patterns are not interrupted by calls that compute nothing, to which removed dropouts add none.
    Pass(remove_dropout),
    Pass(remove_noops),
    # Before anything asks whether two uses share a weight.
    Pass(merge_tied),
    # Casts and transpositions of weights become weights, which the packing passes look for.
    Pass(fold_constants),
    # Weights that were cast are constants now, so that those of backward convolutions are packed like any other.
    Pass(lower_convolution_backward, always=True),
    # What models spell out becomes the operator: padded convolutions, linears over sequences, GELU.
    Pass(fold_padding),
    Pass(unflatten_products),
    Pass(recompose_gelu),
    # While convolutions are still torch's and their weights plain.
    Pass(fold_batch_norm),
    # The norms that are left behind values of other kinds, or behind convolutions that something else reads too.
    Pass(scale_batch_norm),
    # The scales of the model itself, and those of norms that a chain of others separates from their convolution.
    Pass(fold_scales),
    # Weights and biases have their final values.
    Pass(fuse_linears),
    # Packed convolutions change strides: views over them must not depend on strides.
    Pass(free_views, part_of="pack-conv"),
    Pass(pack_conv),
    # Packed weights tell which convolutions share one.
    Pass(use_winograd),
    Pass(pack_linear),
    Pass(pack_embedding_bag),
    Pass(pack_attention),
    Pass(pack_rnn),
    # After packing: it rewrites arguments of packed operators only.
    Pass(fuse_epilogue),
    # A conversion between a convolution and its epilogue would keep them apart.
    Pass(lay_out),
    # Last: it compares the strides of the results with the captured ones.
    Pass(keep_output_layout, always=True),
)


def switchable() -> tuple[Pass, ...]:
    """The passes that a build can do without."""
    return tuple(step for step in PASSES if not step.always and step.part_of is None)


def select(without: Collection[str] = ()) -> tuple[Pass, ...]:
    """The passes but those named in `without`; `"all"` names all that can be switched off.

    Raises:
        BuildError: there is no pass of that name.
    """
    names = [step.name for step in switchable()]
    for name in without:
        if name not in names and name != "all":
            close = difflib.get_close_matches(name, names, 1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise BuildError(f"there is no pass {name!r} to switch off", hint=f"{meant}passes: {', '.join(names)}")
    off = set(names) if "all" in without else set(without)
    return tuple(step for step in PASSES if step.always or (step.part_of or step.name) not in off)


__all__ = ["PASSES", "select", "switchable"]
