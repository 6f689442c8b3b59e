"""Networks by both exporters of torch.onnx. torch is imported where one is made: the calls run without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conformance.onnx_files.case import FileCase, integers

_IMAGES = {"x": {0: "batch", 2: "height", 3: "width"}}
_TOKENS = {"ids": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}}
_SOUND = {"x": {0: "batch", 1: "length"}}
_IDS = {"ids": {0: "batch", 1: "length"}}
_CALLS = ({"batch": 2, "length": 12}, {"batch": 3, "length": 7})
_IMAGE_CALLS = ({"batch": 2, "height": 64, "width": 96}, {"batch": 1, "height": 32, "width": 64})

# The file has formulas for these dims, which have no names then.
_FORMULA_CALLS = ({"batch": 2, "x_2": 64, "x_3": 96}, {"batch": 1, "x_2": 32, "x_3": 64})

CASES: tuple[FileCase, ...] = tuple(
    FileCase(
        f"torch/{name}-{exporter}",
        f"torch.onnx, {exporter}",
        calls=_FORMULA_CALLS if (name, exporter) == ("cnn", "dynamo") else calls,
        kinds=kinds,
    )
    for exporter in ("dynamo", "torchscript")
    for name, calls, kinds in (
        ("cnn", _IMAGE_CALLS, {}),
        ("transformer", _CALLS, {"ids": integers(0, 100)}),
        ("lstm", _CALLS, {}),
        ("gpt2", _CALLS, {"ids": integers(0, 500)}),
    )
    # The older exporter lacks an operator of transformers' masks.
    if (name, exporter) != ("gpt2", "torchscript")
)


def make(name: str, path: Path) -> None:
    """Exports a network."""
    import torch

    torch.manual_seed(0)
    network, _, exporter = name.rpartition("-")
    module, args, axes = {"cnn": _cnn, "transformer": _transformer, "lstm": _lstm, "gpt2": _gpt2}[network]()
    with torch.no_grad():
        if exporter == "dynamo":
            shapes: tuple[dict[int, Any], ...] = tuple(dict(sizes) for sizes in axes.values())
            if network == "cnn":
                # It adds what was halved twice and doubled again; torch.export does not solve this for the size.
                height, width = torch.export.Dim("height"), torch.export.Dim("width")
                shapes = ({0: torch.export.Dim("batch"), 2: 4 * height, 3: 4 * width},)
            how: dict[str, Any] = {"dynamo": True, "dynamic_shapes": shapes}
        else:
            how = {"dynamo": False, "dynamic_axes": axes}
        torch.onnx.export(module, args, str(path), input_names=list(axes), output_names=["y"], **how)


def _cnn() -> Any:
    """Residual blocks with depthwise convolutions, normalization, pooling, upsampling and a classifier."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False),
                nn.BatchNorm2d(channels),
                nn.SiLU(),
                nn.Conv2d(channels, channels, 1),
                nn.GroupNorm(4, channels),
                nn.Hardswish(),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            up = nn.functional.interpolate(nn.functional.max_pool2d(x, 2), scale_factor=2, mode="bilinear")
            return x + self.body(x) + up

    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU6())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10), nn.Softmax(-1))
    return nn.Sequential(stem, Block(16), Block(16), head).eval(), (torch.randn(2, 3, 64, 96),), _IMAGES


def _transformer() -> Any:
    """Two layers of an encoder with a mask."""
    import torch
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(100, 32)
            self.blocks = nn.ModuleList(nn.ModuleDict(self._block()) for _ in range(2))

        @staticmethod
        def _block() -> dict[str, nn.Module]:
            up, down = nn.Linear(32, 64), nn.Linear(64, 32)
            return {
                "qkv": nn.Linear(32, 96),
                "out": nn.Linear(32, 32),
                "up": up,
                "down": down,
                "norm": nn.LayerNorm(32),
            }

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            x = self.embedding(ids)
            batch, length = ids.shape
            for block in self.blocks:
                parts = block["qkv"](block["norm"](x)).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
                bias = (1.0 - mask[:, None, None, :].float()) * -1e4
                y = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], attn_mask=bias)
                x = x + block["out"](y.transpose(1, 2).reshape(batch, length, 32))
                x = x + block["down"](nn.functional.gelu(block["up"](x)))
            return x

    return Encoder().eval(), (torch.randint(0, 100, (2, 12)), torch.ones(2, 12, dtype=torch.int64)), _TOKENS


def _lstm() -> Any:
    """Two layers in both directions."""
    import torch
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 16, num_layers=2, bidirectional=True, batch_first=True)
            self.head = nn.Linear(32, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.lstm(x)[0])  # type: ignore[no-any-return]

    return Tagger().eval(), (torch.randn(2, 12, 8),), _SOUND


def _gpt2() -> Any:
    """transformers' GPT-2 with two layers."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=500, n_positions=64, attn_implementation="eager")

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT2LMHeadModel(config)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.model(ids, use_cache=False).logits  # type: ignore[no-any-return]

    return Logits().eval(), (torch.randint(0, 500, (2, 12)),), _IDS
