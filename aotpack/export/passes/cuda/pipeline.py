"""The passes that choose kernels for CUDA devices, in the order in which they run, with the reason for each place.

They run after those of `passes/common/pipeline.py`.
"""

from __future__ import annotations

from aotpack.export.passes.common.convolution_weight_gradient import lower_convolution_weight_gradient
from aotpack.export.passes.common.fold_constants import fold_constants
from aotpack.export.passes.common.lower_quantization import lower_quantization
from aotpack.export.passes.common.views_to_reshapes import views_to_reshapes
from aotpack.export.passes.cuda.fuse_activation import fuse_activation
from aotpack.export.passes.cuda.fuse_residual import fuse_residual
from aotpack.export.passes.cuda.keep_output_layout import keep_output_layout
from aotpack.export.passes.cuda.lower_attention_backward import lower_attention_backward
from aotpack.export.passes.cuda.use_attention import use_attention
from aotpack.export.passes.cuda.use_attention_backward import use_attention_backward
from aotpack.export.passes.cuda.use_conv import use_conv
from aotpack.export.passes.cuda.use_conv_weight_gradient import use_conv_weight_gradient
from aotpack.export.passes.cuda.use_embedding_bag import use_embedding_bag
from aotpack.export.passes.cuda.use_gemm import use_gemm
from aotpack.export.passes.cuda.use_grouped_product import use_grouped_product
from aotpack.export.passes.cuda.use_int8_weight import use_int8_weight
from aotpack.export.passes.cuda.use_recurrent import use_recurrent
from aotpack.export.passes.runner import Pass

CUDA: tuple[Pass, ...] = (
    # All others know arithmetic alone.
    Pass(lower_quantization, always=True),
    Pass(fold_constants, part_of="fold-constants"),
    # Attentions and convolutions have results in layouts of their own.
    Pass(views_to_reshapes, always=True),
    Pass(use_attention_backward),
    # What that leaves: the forward becomes an attention like others, the backward products.
    Pass(lower_attention_backward),
    Pass(use_attention),
    # Convolutions have no other kernel.
    Pass(use_conv, always=True),
    Pass(use_conv_weight_gradient, always=True),
    # Those that the kernels do not compute; before products are replaced.
    Pass(lower_convolution_weight_gradient, always=True),
    Pass(use_embedding_bag),
    Pass(use_grouped_product),
    # Before products, of which it makes some.
    Pass(use_recurrent),
    # Before products of floating numbers, which would read what is dequantized.
    Pass(use_int8_weight),
    # Products have no other kernel.
    Pass(use_gemm, always=True),
    # Before activations, which come behind sums.
    Pass(fuse_residual),
    # After them: an argument of our kernels.
    Pass(fuse_activation),
    # Last: it compares the strides of the results with the captured ones.
    Pass(keep_output_layout, always=True),
)
