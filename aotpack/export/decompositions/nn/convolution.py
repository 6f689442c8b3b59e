"""Convolutions over dims in the order time, batch, channels."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes


@decomposes(aten.conv_tbc.default)
def _conv_tbc(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Any:
    # [time, batch, in], [taps, in, out] → [time, batch, out]: a product over the taps and inputs of every time.
    taps, inputs, outputs = weight.shape
    steps = aten.constant_pad_nd.default(x, [0, 0, 0, 0, pad, pad]).unfold(0, taps, 1).permute(0, 1, 3, 2)
    rows = steps.reshape(steps.shape[0] * x.shape[1], taps * inputs)
    product = aten.addmm.default(bias, rows, weight.reshape(taps * inputs, outputs))
    return product.view(steps.shape[0], x.shape[1], outputs)
