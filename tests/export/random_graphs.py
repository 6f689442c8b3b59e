"""Small random models with convolutions and everything that moves dims about, for the tests of layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn

_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGES = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_CONVS: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}

# A step takes the values so far (each [n, c, *spatial]) and returns the next one.
Step = Callable[[list[torch.Tensor]], torch.Tensor]


class RandomModel(nn.Module):
    """Steps one after another over all values before; returns those that were chosen."""

    def __init__(self, steps: list[Step], modules: list[nn.Module], results: list[int], heads: list[str]) -> None:
        super().__init__()
        self.steps = steps
        self.parts = nn.ModuleList(modules)
        self.results = results
        self.heads = heads

    def forward(self, x: torch.Tensor) -> Any:
        values = [x]
        for step in self.steps:
            values.append(step(self.parts, values))  # type: ignore[call-arg, arg-type]
        return tuple(_HEADS[head](values[i]) for i, head in zip(self.results, self.heads, strict=True))


_HEADS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda v: v,
    "flatten": lambda v: v.flatten(1),
    "tokens": lambda v: v.flatten(2).transpose(1, 2),
    "rows": lambda v: v.movedim(1, -1).contiguous(),
    "mean": lambda v: v.mean(tuple(range(2, v.dim()))),
    "channel": lambda v: v[:, 0],
    "again": lambda v: (v + 1).reshape(v.shape[0], -1),
}


@st.composite
def models(draw: st.DrawFn) -> tuple[RandomModel, torch.Tensor]:
    """A model in evaluation mode, and an input of batch 2; the batch may be any."""
    spatial = draw(st.sampled_from((1, 2, 2, 2, 3)))
    size = {1: 12, 2: 8, 3: 4}[spatial]
    torch.manual_seed(draw(st.integers(0, 1000)))
    x = torch.randn(2, draw(st.sampled_from((1, 3, 4))), *[size] * spatial)
    if draw(st.booleans()):
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    shapes = [tuple(x.shape)]
    steps: list[Any] = []
    parts: list[nn.Module] = []

    def add(step: Any) -> None:
        with torch.no_grad():
            shapes.append(tuple(step(parts, [torch.zeros(shape) for shape in shapes]).shape))
        steps.append(step)

    add(_conv(parts, spatial, shapes[0][1], 0, draw(st.sampled_from((1, 3)))))
    for _ in range(draw(st.integers(2, 9))):
        # Mostly the latest value, so that little of the model is dead.
        at = draw(st.sampled_from((len(shapes) - 1, len(shapes) - 1, draw(st.integers(0, len(shapes) - 1)))))
        shape = shapes[at]
        kind = draw(st.sampled_from(sorted(_STEPS)))
        step = _STEPS[kind](draw, at, shape, shapes, parts, spatial)
        if step is not None:
            add(step)
    count = draw(st.integers(1, 3))
    results = [len(shapes) - 1, *(draw(st.integers(1, len(shapes) - 1)) for _ in range(count - 1))]
    heads = [draw(st.sampled_from(sorted(_HEADS))) for _ in results]
    return RandomModel(steps, parts, results, heads).eval(), x


def _conv(parts: list[nn.Module], spatial: int, channels: int, at: int, kernel: int, groups: int = 1) -> Any:
    parts.append(_CONVS[spatial](channels, 4 * groups, kernel, padding=kernel // 2, groups=groups))
    number = len(parts) - 1
    return lambda modules, v: modules[number](v[at])


def _make_conv(draw: Any, at: int, shape: Any, shapes: Any, parts: Any, spatial: int) -> Any:
    return _conv(parts, spatial, shape[1], at, draw(st.sampled_from((1, 3))))


def _make_depthwise(draw: Any, at: int, shape: Any, shapes: Any, parts: Any, spatial: int) -> Any:
    return _conv(parts, spatial, shape[1], at, 3, shape[1])


def _make_pointwise(draw: Any, at: int, shape: Any, shapes: Any, parts: Any, spatial: int) -> Any:
    function = draw(st.sampled_from((F.gelu, F.relu, torch.erf, lambda v: v.transpose(2, -1) * 2)))
    return lambda modules, v: function(v[at])


def _make_add(draw: Any, at: int, shape: Any, shapes: Any, parts: Any, spatial: int) -> Any:
    others = [i for i, other in enumerate(shapes) if other == shape]
    other = draw(st.sampled_from(others))
    return lambda modules, v: v[at] + torch.sigmoid(v[other])


def _make_cat(draw: Any, at: int, shape: Any, shapes: Any, parts: Any, spatial: int) -> Any:
    others = [i for i, other in enumerate(shapes) if other[2:] == shape[2:]]
    other = draw(st.sampled_from(others))
    return lambda modules, v: torch.cat([v[at], v[other]], 1)


def _make_pool(draw: Any, at: int, shape: Any, shapes: Any, parts: Any, spatial: int) -> Any:
    if min(shape[2:]) < 2:
        return None
    function = draw(st.sampled_from((_POOLS[spatial], _AVERAGES[spatial])))
    return lambda modules, v: function(v[at], 2)


def _make_upsample(draw: Any, at: int, shape: Any, shapes: Any, parts: Any, spatial: int) -> Any:
    if max(shape[2:]) > 16:
        return None
    mode = draw(st.sampled_from(("nearest", _LINEAR[spatial])))
    return lambda modules, v: F.interpolate(v[at], scale_factor=2, mode=mode)


def _make_norm(draw: Any, at: int, shape: Any, shapes: Any, parts: Any, spatial: int) -> Any:
    kind = draw(st.sampled_from(("group", "layer", "softmax")))
    if kind == "softmax":
        return lambda modules, v: v[at].softmax(1)
    parts.append(nn.GroupNorm(1, shape[1]) if kind == "group" else nn.LayerNorm(shape[1]))
    number = len(parts) - 1
    if kind == "group":
        return lambda modules, v: modules[number](v[at])
    return lambda modules, v: modules[number](v[at].movedim(1, -1)).movedim(-1, 1)


def _make_linear(draw: Any, at: int, shape: Any, shapes: Any, parts: Any, spatial: int) -> Any:
    parts.append(nn.Linear(shape[1], 4))
    number = len(parts) - 1
    return lambda modules, v: modules[number](v[at].movedim(1, -1)).movedim(-1, 1)


def _make_reshape(draw: Any, at: int, shape: Any, shapes: Any, parts: Any, spatial: int) -> Any:
    kind = draw(st.sampled_from(("tokens", "shuffle", "merge")))
    if kind == "tokens":
        return lambda modules, v: torch.tanh(v[at].flatten(2)).reshape(v[at].shape[0], *shape[1:])
    if kind == "merge":
        return lambda modules, v: v[at].reshape(v[at].shape[0], -1).cos().reshape(v[at].shape[0], *shape[1:])
    if shape[1] % 2:
        return None
    return lambda modules, v: v[at].unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


def _make_slice(draw: Any, at: int, shape: Any, shapes: Any, parts: Any, spatial: int) -> Any:
    kind = draw(st.sampled_from(("chunk", "spatial", "pad", "constant", "gate")))
    if kind == "chunk":
        return None if shape[1] < 2 else lambda modules, v: v[at].chunk(2, 1)[1]
    if kind == "spatial":
        return None if shape[2] < 2 else lambda modules, v: v[at][:, :, 1:]
    if kind == "pad":
        return lambda modules, v: F.pad(v[at], (1, 0))
    if kind == "gate":
        return lambda modules, v: v[at] * v[at].mean(tuple(range(2, spatial + 2)), keepdim=True)
    parts.append(nn.ParameterList([nn.Parameter(torch.randn(1, *shape[1:]))]))
    number = len(parts) - 1
    return lambda modules, v: v[at] + modules[number][0]


_STEPS: dict[str, Any] = {
    "conv": _make_conv,
    "conv again": _make_conv,
    "depthwise": _make_depthwise,
    "pointwise": _make_pointwise,
    "add": _make_add,
    "cat": _make_cat,
    "pool": _make_pool,
    "upsample": _make_upsample,
    "norm": _make_norm,
    "linear": _make_linear,
    "reshape": _make_reshape,
    "slice": _make_slice,
}
