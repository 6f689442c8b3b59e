"""The operators `torch.ops.aotpack.*`: passes and decompositions use them, and the kernels of archives compute them."""

from aotpack.export.ops.activations import ACTIVATIONS
from aotpack.export.ops.attention import attention, attention_with_lse
from aotpack.export.ops.conv import conv_sizes, depthwise_block, packed_conv
from aotpack.export.ops.embedding_bag import embedding_bag
from aotpack.export.ops.grouped import grouped_mm, grouped_outer
from aotpack.export.ops.int8 import int8_conv, int8_linear
from aotpack.export.ops.interleave import interleave
from aotpack.export.ops.layout import channels_last_strides, dense_strides, to_layout
from aotpack.export.ops.linear import pack_conv, pack_linear, packed_embedding, packed_linear
from aotpack.export.ops.max_pool import max_pool
from aotpack.export.ops.norms import layer_norm
from aotpack.export.ops.quantization import dequantize, quantize
from aotpack.export.ops.quantized_linear import quantized_linear
from aotpack.export.ops.registry import C_SHIMS, KERNEL_DTYPES
from aotpack.export.ops.rnn import gru_both, gru_layer, lstm_both, lstm_layer

__all__ = [
    "ACTIVATIONS",
    "C_SHIMS",
    "KERNEL_DTYPES",
    "attention",
    "attention_with_lse",
    "channels_last_strides",
    "conv_sizes",
    "dense_strides",
    "depthwise_block",
    "dequantize",
    "embedding_bag",
    "grouped_mm",
    "grouped_outer",
    "gru_both",
    "gru_layer",
    "int8_conv",
    "int8_linear",
    "interleave",
    "layer_norm",
    "lstm_both",
    "lstm_layer",
    "max_pool",
    "pack_conv",
    "pack_linear",
    "packed_conv",
    "packed_embedding",
    "packed_linear",
    "quantize",
    "quantized_linear",
    "to_layout",
]
