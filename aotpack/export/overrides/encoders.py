"""Transformer encoders whose padding torch leaves out by nested tensors, which a trace does not have.

In a trace torch takes its slower path, on which rows of padding get results too; on the fast one they are zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import transformer

from aotpack.export.overrides.table import replaces
from aotpack.export.torch_compat.functions import canonical_mask

_forward = nn.TransformerEncoder.forward


def _leaves_padding_out(encoder: nn.TransformerEncoder, src: Tensor, mask: Tensor | None) -> bool:
    """Whether eager PyTorch (2.11 to 2.13) would, if all padding is at the end of its row."""
    first: Any = encoder.layers[0]
    weights = [p for p in first.parameters() if isinstance(p, Tensor)]
    return bool(
        torch.backends.mha.get_fastpath_enabled()
        and getattr(encoder, "use_nested_tensor", False)
        and not first.training
        and src.dim() == 3
        and mask is None
        and not torch.is_autocast_enabled()
        and not (torch.is_grad_enabled() and any(t.requires_grad for t in (src, *weights)))
    )


@replaces(transformer, "_detect_is_causal_mask")
def _is_causal(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    """What the caller says. torch looks whether the mask is causal, to leave it out then: a hint alone."""
    return is_causal is True


@replaces(nn.TransformerEncoder, "forward")
def _encode(
    self: nn.TransformerEncoder,
    src: Tensor,
    mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool | None = None,
) -> Tensor:
    if src_key_padding_mask is None or not _leaves_padding_out(self, src, mask):
        return _forward(self, src, mask, src_key_padding_mask, is_causal)
    given: Any = canonical_mask(src_key_padding_mask, "src_key_padding_mask", None, "mask", src.dtype)
    padding = given != 0
    # Padding inside of a row keeps eager from the fast path; with mask_check=False it does not look.
    aligned = (
        padding.new_ones(()) if not getattr(self, "mask_check", True) else ~(padding[:, :-1] & ~padding[:, 1:]).any()
    )
    left_out = torch.zeros_like(given).masked_fill(padding, -torch.inf)
    seen = torch.where(aligned, left_out, given)
    output = src
    for layer in self.layers:
        output = layer(output, src_mask=None, src_key_padding_mask=seen)
    output = torch.where((aligned & padding)[..., None], torch.zeros((), dtype=output.dtype), output)
    return output if self.norm is None else self.norm(output)
