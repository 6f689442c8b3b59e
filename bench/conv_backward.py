"""Gradients of convolutions on a GPU, beside cuDNN's.

    python -m bench.conv_backward [--json FILE]

For layers of ResNet-50 and ResNet-18 and for depthwise ones, in half precision with a batch of 32: the time of the
gradient of the weight and of the input by the kernels that archives contain, that of cuDNN's (the fastest of its
algorithms), and the errors of both, of the greatest value, with gradients in double precision. Needs a GPU and Triton.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.cuda import conv, conv_backward
from bench.gpu_kernels import launch

_BATCH = 32
_CALLS = 20


@dataclass(frozen=True)
class Layer:
    """Channels in and out, the kernel's size, stride, the image's size and groups of a convolution of images."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    size: int
    groups: int = 1

    def __str__(self) -> str:
        name = f"{self.inputs:4} → {self.outputs:4}  {self.kernel}x{self.kernel}/{self.stride}  {self.size:3}"
        return f"{name}  depthwise" if self.groups > 1 else name


_SHAPES = (
    *((3, 64, 7, 2, 224), (64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56), (256, 64, 1, 1, 56)),
    *((256, 128, 1, 1, 56), (128, 128, 3, 2, 56), (128, 512, 1, 1, 28), (256, 512, 1, 2, 56), (512, 128, 1, 1, 28)),
    *((128, 128, 3, 1, 28), (512, 256, 1, 1, 28), (256, 256, 3, 2, 28), (256, 1024, 1, 1, 14), (512, 1024, 1, 2, 28)),
    *((1024, 256, 1, 1, 14), (256, 256, 3, 1, 14), (1024, 512, 1, 1, 14), (512, 512, 3, 2, 14), (512, 2048, 1, 1, 7)),
    *((1024, 2048, 1, 2, 14), (2048, 512, 1, 1, 7), (512, 512, 3, 1, 7)),
    # ResNet-18 has these, too.
    *((64, 128, 3, 2, 56), (128, 256, 3, 2, 28), (256, 512, 3, 2, 14), (64, 128, 1, 2, 56)),
)
LAYERS = (
    *(Layer(*shape) for shape in _SHAPES),
    Layer(144, 144, 3, 1, 56, 144),
    Layer(144, 144, 3, 2, 56, 144),
    Layer(576, 576, 3, 1, 14, 576),
)


class Case:
    """A layer's operands and its gradients; `x`, `dy` and `weight` have their channels innermost."""

    def __init__(self, layer: Layer, dtype: torch.dtype = torch.float16) -> None:
        pad = layer.kernel // 2
        self.layer = layer
        self.arguments: tuple[Any, ...] = ([layer.stride] * 2, [pad] * 2, [1] * 2)
        last = torch.channels_last
        self.x = torch.randn(_BATCH, layer.inputs, layer.size, layer.size, device="cuda", dtype=dtype).to(
            memory_format=last
        )
        shape = (layer.outputs, layer.inputs // layer.groups, layer.kernel, layer.kernel)
        self.weight = torch.randn(shape, device="cuda", dtype=dtype).to(memory_format=last)
        places = (layer.size + 2 * pad - layer.kernel) // layer.stride + 1
        self.dy = torch.randn(_BATCH, layer.outputs, places, places, device="cuda", dtype=dtype).to(memory_format=last)
        # As builds lay out constants: what is summed over lies innermost.
        self.laid_out = self.weight.movedim(0, -1).contiguous().movedim(-1, 0)
        left = layer.size - ((places - 1) * layer.stride - 2 * pad + layer.kernel)
        self.output_padding = [left] * 2

    def torch_gradient(self, *, of_weight: bool, double: bool = False) -> Tensor:
        operands = (self.dy, self.x, self.weight)
        if double:
            operands = tuple(operand.double() for operand in operands)  # type: ignore[assignment]
        mask = [not of_weight, of_weight, False]
        gradients = torch.ops.aten.convolution_backward(
            *operands, None, *self.arguments, False, [0, 0], self.layer.groups, mask
        )
        result: Tensor = gradients[1 if of_weight else 0]
        return result

    def weight_gradient(self) -> Tensor:
        kernel = [self.layer.kernel] * 2
        return conv_backward.weight_gradient(self.dy, self.x, kernel, *self.arguments, self.layer.groups, launch)

    def input_gradient(self) -> Tensor:
        transposed = (*self.arguments, True, self.output_padding, self.layer.groups, 0)
        return conv.convolve(self.dy, self.laid_out, None, *transposed, launch)


def milliseconds(function: Callable[[], object]) -> float:
    """The time of a call among many in a CUDA graph; the least of three times."""
    function()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            function()
    times = []
    for _ in range(4):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / _CALLS)
    return min(times[1:])


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted).abs().max() / wanted.abs().max())


def measure(case: Case) -> dict[str, Any]:
    row: dict[str, Any] = asdict(case.layer)
    for name, of_weight, ours in (("weight", True, case.weight_gradient), ("input", False, case.input_gradient)):
        wanted = case.torch_gradient(of_weight=of_weight, double=True)
        row[name] = {
            "ours_ms": milliseconds(ours),
            "cudnn_ms": milliseconds(lambda of_weight=of_weight: case.torch_gradient(of_weight=of_weight)),
            "ours_error": error(ours(), wanted),
            "cudnn_error": error(case.torch_gradient(of_weight=of_weight), wanted),
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    print(torch.cuda.get_device_name(), torch.__version__)
    rows = []
    for layer in LAYERS:
        row = measure(Case(layer))
        rows.append(row)
        cells = []
        for name in ("weight", "input"):
            v = row[name]
            ratio = v["ours_ms"] / v["cudnn_ms"]
            cells.append(f"{v['ours_ms']:7.4f} {v['cudnn_ms']:7.4f} {ratio:5.2f} {v['ours_error']:.0e}")
        print(layer, "|", " | ".join(cells), flush=True)
    for name in ("weight", "input"):
        sums = [sum(row[name][key] for row in rows) for key in ("ours_ms", "cudnn_ms")]
        print(f"{name}: {sums[0]:.3f} ms, cuDNN {sums[1]:.3f} ms, ratio {sums[0] / sums[1]:.2f}")
    if options.json:
        options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
