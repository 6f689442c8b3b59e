"""LSTM, GRU and RNN.

Layers with the usual functions are torch's, which are captured whole. Others are computed step by step, in a `scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.torch_compat.higher_order import scan_of

Tensor = torch.Tensor
Step = Callable[..., tuple[Tensor, ...]]

# Functions of the gates, with the defaults of their two numbers.
_FUNCTIONS: dict[str, tuple[Callable[[Tensor, float, float], Tensor], float, float]] = {
    "relu": (lambda x, a, b: torch.relu(x), 0, 0),
    "tanh": (lambda x, a, b: torch.tanh(x), 0, 0),
    "sigmoid": (lambda x, a, b: torch.sigmoid(x), 0, 0),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: torch.where(x >= 0, x, a * x), 0.01, 0),
    "thresholdedrelu": (lambda x, a, b: torch.where(x >= a, x, 0.0), 1.0, 0),
    "scaledtanh": (lambda x, a, b: a * torch.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: (a * x + b).clamp(0, 1), 0.2, 0.5),
    "elu": (lambda x, a, b: torch.where(x >= 0, x, a * torch.expm1(x)), 1.0, 0),
    "softsign": (lambda x, a, b: x / (1 + x.abs()), 0, 0),
    "softplus": (lambda x, a, b: torch.nn.functional.softplus(x), 0, 0),
}


class Layer:
    """What LSTM, GRU and RNN have in common.

    Attributes:
        directions: 1, or 2 for a layer in both.
        x: [time, batch, features].
        reverse: by direction, whether it goes from the end.
    """

    def __init__(self, node: Node, x: Tensor, lengths: Tensor | None, usual: Sequence[str]) -> None:
        self.node = node
        self.by_batch = bool(node.get("layout", 0))
        self.x = x.transpose(0, 1) if self.by_batch else x
        self.lengths = lengths
        direction = node.get("direction", "forward")
        self.reverse = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
        self.directions = len(self.reverse)
        names = [name.lower() for name in node.get("activations", list(usual) * self.directions)]
        numbers = [iter(node.get("activation_alpha", [])), iter(node.get("activation_beta", []))]
        self.is_usual = names == [name.lower() for name in usual] * self.directions and not node.get("clip")
        self.functions = [_function(name, *numbers) for name in names]
        self.clip = node.get("clip")

    def of(self, direction: int) -> list[Callable[[Tensor], Tensor]]:
        """The functions of a direction."""
        each = len(self.functions) // self.directions
        return self.functions[direction * each : (direction + 1) * each]

    def clipped(self, x: Tensor) -> Tensor:
        return x if not self.clip else x.clamp(-self.clip, self.clip)

    def state(self, given: Tensor | None, size: int) -> Tensor:
        """[directions, batch, hidden]."""
        if given is None:
            return torch.zeros([self.directions, self.x.shape[1], size], dtype=self.x.dtype)
        return given.transpose(0, 1) if self.by_batch else given

    def outputs(self, y: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """From [time, directions, batch, hidden] and [directions, batch, hidden] to what the node returns."""
        if not self.by_batch:
            return (y, *states)
        return (y.permute(2, 0, 1, 3), *(s.transpose(0, 1) for s in states))

    def run(self, step: Callable[[int], Step], states: Sequence[Tensor], weights: Sequence[Tensor]) -> Any:
        """Goes over the time of each direction.

        Args:
            step: of a direction: `(x, *states, *weights)` → new states, of which the first is the result.
            states: [directions, batch, hidden].
            weights: [directions, …].
        """
        results, finals = [], []
        for i, reverse in enumerate(self.reverse):
            x = self._turned(self.x) if reverse else self.x
            own = [w[i] for w in weights]
            y, *final = self._scanned(step(i), x, [s[i] for s in states], own)
            results.append(self._turned(y) if reverse else y)
            finals.append(final)
        return (torch.stack(results, 1), *(torch.stack(each) for each in zip(*finals, strict=True)))

    def _turned(self, x: Tensor) -> Tensor:
        """The time in reverse, of each sequence by its length."""
        if self.lengths is None:
            return x.flip(0)
        steps = torch.arange(x.shape[0])[:, None]
        places = torch.where(steps < self.lengths, self.lengths - 1 - steps, steps).to(torch.int64)
        return torch.gather(x, 0, places[:, :, None].expand(x.shape))

    def _scanned(self, step: Step, x: Tensor, states: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        """The results of all steps, and the states after the last."""
        count = len(states)
        masks = [] if self.lengths is None else [torch.arange(x.shape[0])[:, None] < self.lengths]

        def combine(*values: Tensor) -> list[Tensor]:
            old, rest = values[:count], values[count:]
            new = step(rest[0], *old, *rest[1 + len(masks) :])
            result = new[0]
            if masks:
                inside = rest[1].unsqueeze(-1)
                new = tuple(torch.where(inside, n, o) for n, o in zip(new, old, strict=True))
                result = torch.where(inside, result, torch.zeros_like(result))
            return [*(n.clone() for n in new), result.clone()]

        found = scan_of(combine, [s.contiguous() for s in states], [x.contiguous(), *masks], weights)
        return [found[-1], *found[:-1]]


def _function(name: str, alphas: Any, betas: Any) -> Callable[[Tensor], Tensor]:
    function, alpha, beta = _FUNCTIONS[name]
    # Numbers are listed for the functions that have them, in order.
    a = next(alphas, alpha) if alpha else 0.0
    b = next(betas, beta) if name in ("affine", "scaledtanh", "hardsigmoid") else 0.0
    return lambda x: function(x, a, b)


def _split_bias(bias: Tensor | None, like: Tensor, gates: int, hidden: int) -> tuple[Tensor, Tensor]:
    """Biases of the input and of the state: [directions, gates * hidden]."""
    if bias is None:
        zero = torch.zeros([like.shape[0], gates * hidden], dtype=like.dtype)
        return zero, zero
    return bias[:, : gates * hidden], bias[:, gates * hidden :]


def _ordered(weight: Tensor, order: Sequence[int], hidden: int) -> Tensor:
    """Gates in torch's order."""
    parts = [weight.narrow(0, gate * hidden, hidden) for gate in order]
    return torch.cat(parts)


def _torch_weights(
    layer: Layer, w: Tensor, r: Tensor, biases: tuple[Tensor, Tensor], order: Sequence[int], hidden: int
) -> list[Tensor]:
    weights = []
    for i in range(layer.directions):
        weights += [_ordered(each[i], order, hidden) for each in (w, r, *biases)]
    return weights


def _by_torch(layer: Layer) -> bool:
    """Whether torch's layers compute it; they have no single direction from the end, but time can be turned."""
    return layer.is_usual and layer.lengths is None


def _of_torch(layer: Layer, function: Any, states: Any, weights: list[Tensor]) -> tuple[Tensor, ...]:
    turned = layer.reverse == [True]
    x = layer.x.flip(0) if turned else layer.x
    y, *final = function(x.contiguous(), states, weights, True, 1, 0.0, False, layer.directions == 2, False)
    y = y.flip(0) if turned else y
    y = y.reshape([y.shape[0], y.shape[1], layer.directions, -1]).transpose(1, 2)
    return layer.outputs(y, *final)


@operator("LSTM")
def lstm(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    peepholes: Tensor | None = None,
) -> tuple[Tensor, ...]:
    layer = Layer(node, x, lengths, ("sigmoid", "tanh", "tanh"))
    hidden = r.shape[-1]
    biases = _split_bias(bias, w, 4, hidden)
    states = [layer.state(h, hidden), layer.state(c, hidden)]
    if _by_torch(layer) and peepholes is None and not node.get("input_forget", 0):
        weights = _torch_weights(layer, w, r, biases, (0, 2, 3, 1), hidden)
        return _of_torch(layer, torch.lstm, [s.contiguous() for s in states], weights)
    if peepholes is None:
        peepholes = torch.zeros([layer.directions, 3 * hidden], dtype=x.dtype)

    def step_of(direction: int) -> Step:
        f, g, k = layer.of(direction)

        def step(x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
            w, r, b, p = weights
            i, o, forget, cell = (x @ w.t() + h @ r.t() + b).chunk(4, -1)
            pi, po, pf = p.chunk(3, -1)
            i = f(layer.clipped(i + pi * c))
            forget = 1 - i if node.get("input_forget", 0) else f(layer.clipped(forget + pf * c))
            new = forget * c + i * g(layer.clipped(cell))
            o = f(layer.clipped(o + po * new))
            return o * k(layer.clipped(new)), new

        return step

    return layer.outputs(*layer.run(step_of, states, [w, r, biases[0] + biases[1], peepholes]))


@operator("GRU")
def gru(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    layer = Layer(node, x, lengths, ("sigmoid", "tanh"))
    hidden = r.shape[-1]
    biases = _split_bias(bias, w, 3, hidden)
    state = layer.state(h, hidden)
    after = bool(node.get("linear_before_reset", 0))
    if _by_torch(layer) and after:
        weights = _torch_weights(layer, w, r, biases, (1, 0, 2), hidden)
        return _of_torch(layer, torch.gru, state.contiguous(), weights)

    def step_of(direction: int) -> Step:
        f, g = layer.of(direction)

        def step(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
            w, r, wb, rb = weights
            xz, xr, xh = (x @ w.t() + wb).chunk(3, -1)
            rz, rr, rh = r.chunk(3, 0)
            bz, br, bh = rb.chunk(3, -1)
            z = f(layer.clipped(xz + h @ rz.t() + bz))
            reset = f(layer.clipped(xr + h @ rr.t() + br))
            inner = reset * (h @ rh.t() + bh) if after else (reset * h) @ rh.t() + bh
            return ((1 - z) * g(layer.clipped(xh + inner)) + z * h,)

        return step

    return layer.outputs(*layer.run(step_of, [state], [w, r, *biases]))


@operator("RNN")
def rnn(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    layer = Layer(node, x, lengths, ("tanh",))
    hidden = r.shape[-1]
    biases = _split_bias(bias, w, 1, hidden)
    state = layer.state(h, hidden)
    if _by_torch(layer):
        weights = _torch_weights(layer, w, r, biases, (0,), hidden)
        return _of_torch(layer, torch.rnn_tanh, state.contiguous(), weights)

    def step_of(direction: int) -> Step:
        (f,) = layer.of(direction)

        def step(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
            w, r, b = weights
            return (f(layer.clipped(x @ w.t() + h @ r.t() + b)),)

        return step

    return layer.outputs(*layer.run(step_of, [state], [w, r, biases[0] + biases[1]]))
