"""What has more than one algorithm, by its sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

# Output channels of a packed panel, as kPanel of csrc/kernels/types.h: what is multiplied is whole panels.
PANEL = 32

Pair = tuple[int, int]
"""Along height and width."""


@dataclass(frozen=True, slots=True, order=True)
class ConvShape:
    """A dense 3 x 3 convolution of stride 1 in fp32: sums over products (`direct`), or Winograd's F(2 x 2, 3 x 3)
    or F(4 x 4, 3 x 3).

    Attributes:
        images, channels, outputs: of the input and the result.
        image, result: pixels of each.
        padding: in front of the image.
    """

    operator: ClassVar[str] = "conv"
    algorithms: ClassVar[tuple[str, ...]] = ("direct", "winograd_2x2", "winograd_4x4")

    images: int
    channels: int
    outputs: int
    image: Pair
    result: Pair
    padding: Pair = (1, 1)

    @property
    def numbers(self) -> tuple[int, ...]:
        """As csrc/probe/algorithms.cpp reads them."""
        return self.images, self.channels, self.outputs, *self.image, *self.result, *self.padding


@dataclass(frozen=True, slots=True, order=True)
class BlockShape:
    """A depthwise convolution with the pointwise ones before and behind it, one after the other (`parts`) or in one
    call (`fused`).

    Attributes:
        itemsize: bytes of an element: 4 is float32; 2 is bfloat16, whose times are float16's too.
        images, inputs, channels, outputs: `channels` of the depthwise convolution, `inputs` before the first one and
            `outputs` behind the last.
        image, result: pixels before and behind the depthwise convolution.
        kernel, stride, padding, dilation: of the depthwise convolution; the padding in front of the image.
        expands, projects: whether there is a pointwise convolution before it, and behind it.
    """

    operator: ClassVar[str] = "block"
    algorithms: ClassVar[tuple[str, ...]] = ("parts", "fused")

    itemsize: int
    images: int
    inputs: int
    channels: int
    outputs: int
    image: Pair
    result: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    expands: bool
    projects: bool

    @property
    def numbers(self) -> tuple[int, ...]:
        """As csrc/probe/algorithms.cpp reads them; the dtype by its number in csrc/kernels/types.h."""
        dtype = 6 if self.itemsize == 4 else 15
        sizes = (*self.image, *self.result, *self.kernel, *self.stride, *self.padding, *self.dilation)
        counts = (dtype, self.images, self.inputs, self.channels, self.outputs)
        return *counts, *sizes, int(self.expands), int(self.projects)


Shape = ConvShape | BlockShape
