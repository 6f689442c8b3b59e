"""The passes that choose kernels and layouts for CPUs, in the order in which they run, with the reason for each place.

They run after those of `passes/common/pipeline.py`.
"""

from __future__ import annotations

from aotpack.export.passes.common.convolution_weight_gradient import lower_convolution_weight_gradient
from aotpack.export.passes.common.fold_constants import fold_constants
from aotpack.export.passes.common.lower_quantization import lower_quantization
from aotpack.export.passes.common.views_to_reshapes import views_to_reshapes
from aotpack.export.passes.cpu.assign_layouts import assign_layouts
from aotpack.export.passes.cpu.fuse_depthwise import fuse_depthwise
from aotpack.export.passes.cpu.fuse_epilogue import fuse_epilogue
from aotpack.export.passes.cpu.keep_output_layout import keep_output_layout
from aotpack.export.passes.cpu.pack_attention import pack_attention
from aotpack.export.passes.cpu.pack_conv import pack_conv
from aotpack.export.passes.cpu.pack_embedding_bag import pack_embedding_bag
from aotpack.export.passes.cpu.pack_flex_attention import pack_flex_attention
from aotpack.export.passes.cpu.pack_linear import pack_linear
from aotpack.export.passes.cpu.pack_rnn import pack_rnn
from aotpack.export.passes.cpu.use_int8 import use_int8
from aotpack.export.passes.cpu.use_interleave import use_interleave
from aotpack.export.passes.cpu.use_layer_norm import use_layer_norm
from aotpack.export.passes.cpu.use_max_pool import pool_bytes, use_max_pool
from aotpack.export.passes.cpu.use_quantized_weight import use_quantized_weight
from aotpack.export.passes.cpu.winograd import use_winograd
from aotpack.export.passes.runner import Pass

CPU: tuple[Pass, ...] = (
    # While it is said how operands and results are quantized.
    Pass(pool_bytes),
    Pass(use_int8),
    # All others, here and in code generation, know arithmetic alone.
    Pass(lower_quantization, always=True),
    # Quantization is arithmetic now, of which small weights are folded next.
    Pass(use_quantized_weight),
    # Weights whose quantization is arithmetic now.
    Pass(fold_constants, part_of="fold-constants"),
    # First: the others see products.
    Pass(lower_convolution_weight_gradient, always=True),
    # Packed convolutions change strides: views over them must not depend on strides.
    Pass(views_to_reshapes, part_of="pack-conv"),
    Pass(pack_conv),
    # Packed weights tell which convolutions share one.
    Pass(use_winograd),
    Pass(pack_linear),
    Pass(pack_embedding_bag),
    Pass(pack_attention),
    # Beside the other attention: operators between its two halves must still be torch's.
    Pass(pack_flex_attention),
    Pass(pack_rnn),
    # After packing: it rewrites arguments of packed operators only.
    Pass(fuse_epilogue),
    # What additions are left before norms is known now.
    Pass(use_layer_norm),
    # While shuffles are what the model says: conversions would come between.
    Pass(use_interleave),
    # What lies channels-last is known next.
    Pass(use_max_pool),
    # A conversion between a convolution and its epilogue would keep them apart.
    Pass(assign_layouts),
    # Convolutions with all of their epilogues, and nothing between them.
    Pass(fuse_depthwise),
    # Last: it compares the strides of the results with the captured ones.
    Pass(keep_output_layout, always=True),
)
