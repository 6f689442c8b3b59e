"""A Llama-like step of text generation whose linears have weights of 4 or 8 bits, as llama.cpp's formats store them:
groups of 32 along the inputs, an fp16 scale for each, and no offsets.

All forms of the model compute with the same matrices, which are those of the narrowest form. The cache has what the
step itself writes for tokens 0, 1, 2, …
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bench.decoding import Cache, LlamaStep

GROUP = 32
LENGTH, PREFIX = 256, 240


class QuantizedLinear(nn.Module):
    """Numbers of 8 bits, or two of 4 bits in each byte with 8 added, and scales of groups."""

    numbers: Tensor
    scales: Tensor

    def __init__(self, numbers: Tensor, scales: Tensor, bits: int) -> None:
        super().__init__()
        self.bits = bits
        pairs = (numbers + 8).to(torch.uint8).unflatten(1, (-1, 2))
        self.register_buffer("numbers", numbers if bits == 8 else pairs[..., 0] | pairs[..., 1] << 4)
        self.register_buffer("scales", scales)

    def matrix(self) -> Tensor:
        """The weight, fp32 [outputs, inputs]."""
        numbers = self.numbers
        if self.bits == 4:
            numbers = torch.stack((numbers & 15, numbers >> 4), -1).flatten(1).to(torch.int8) - 8
        groups = numbers.unflatten(1, (-1, GROUP)).float()
        return (groups * self.scales.float().unsqueeze(-1)).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.matrix())


def llama_step(bits: int = 32) -> LlamaStep:
    """The step with weights of `bits` bits, 4, 8 or 32; the same function in each."""
    # Without values: random ones for a billion weights by the modules themselves would take a minute.
    with torch.device("meta"):
        module = LlamaStep(LENGTH)
    angles = LlamaStep(LENGTH, layers=0, vocabulary=1).angles
    module.register_buffer("angles", angles)
    _fill(module, torch.Generator().manual_seed(0), bits)
    with torch.no_grad():
        module(torch.arange(PREFIX)[None], torch.arange(PREFIX))
    return module


def _fill(module: nn.Module, generator: torch.Generator, bits: int) -> None:
    """Gives the parts of a module on the meta device their values."""
    for name, part in module.named_children():
        if isinstance(part, nn.Linear):
            setattr(module, name, _linear(part.out_features, part.in_features, generator, bits))
        elif isinstance(part, nn.Embedding):
            values = torch.randn(part.num_embeddings, part.embedding_dim, generator=generator)
            setattr(module, name, nn.Embedding.from_pretrained(values))
        elif isinstance(part, nn.RMSNorm):
            part.to_empty(device="cpu")
            nn.init.uniform_(part.weight, 0.8, 1.2, generator=generator)
        elif isinstance(part, Cache):
            part.to_empty(device="cpu")
            part.keys.zero_(), part.values.zero_()
        else:
            _fill(part, generator, bits)


def _linear(outputs: int, inputs: int, generator: torch.Generator, bits: int) -> nn.Module:
    numbers = torch.randint(-8, 8, (outputs, inputs), dtype=torch.int8, generator=generator)
    # A variance of 1 / inputs for the products; the numbers have 21.5.
    scales = (torch.rand(outputs, inputs // GROUP, generator=generator) + 0.5) * (21.5 * inputs) ** -0.5
    quantized = QuantizedLinear(numbers, scales.half(), 8 if bits == 32 else bits)
    if bits != 32:
        return quantized
    linear = nn.Linear(inputs, outputs, bias=False, device="meta")
    linear.weight = nn.Parameter(quantized.matrix(), requires_grad=False)
    return linear
