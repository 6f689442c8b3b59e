"""LSTM, GRU and RNN.

Layers with the usual functions are torch's, which are captured whole. Others are computed step by step, in a `scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import CONTRIB, operator
from aotpack.export.onnx.ops.activations import ACTIVATIONS
from aotpack.export.onnx.ops.quantization import dequantized, dynamic_quantize_linear
from aotpack.export.ops import recurrent
from aotpack.export.torch_compat.higher_order import scan_of

Tensor = torch.Tensor
Step = Callable[..., tuple[Tensor, ...]]


class Layer:
    """What LSTM, GRU and RNN have in common.

    Args:
        inputs: of the node: x, weights of the input and of the state, and as far as it has them biases, lengths and the
            initial state.
        gates: how many the layer has.
        usual: names of the functions that torch's layer has.

    Attributes:
        directions: 1, or 2 for a layer in both.
        x: [time, batch, features].
        w, r: weights of the input and of the state: [directions, gates * hidden, features or hidden].
        biases: of the input and of the state: [directions, gates * hidden].
        initial: the state before the first step, as the node has it; None: zeros.
        reverse: by direction, whether it goes from the end.
    """

    def __init__(self, node: Node, inputs: Sequence[Tensor | None], gates: int, usual: Sequence[str]) -> None:
        x, w, r, bias, lengths, self.initial = [*inputs, None, None, None][:6]
        if x is None or w is None or r is None:
            raise node.error("it has no input, or no weights")
        if x.dim() != 3:
            raise node.error(f"its input has {x.dim()} dims, not 3")
        self.node = node
        self.w, self.r, self.hidden = w, r, r.shape[-1]
        self.biases = _split_bias(bias, w, gates, self.hidden)
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

    @property
    def bias(self) -> Tensor:
        """The sum of both biases."""
        return self.biases[0] + self.biases[1]

    def of(self, direction: int) -> list[Callable[[Tensor], Tensor]]:
        """The functions of a direction."""
        each = len(self.functions) // self.directions
        return self.functions[direction * each : (direction + 1) * each]

    def clipped(self, x: Tensor) -> Tensor:
        return x if not self.clip else x.clamp(-self.clip, self.clip)

    def state(self, given: Tensor | None) -> Tensor:
        """[directions, batch, hidden]."""
        if given is None:
            return torch.zeros([self.directions, self.x.shape[1], self.hidden], dtype=self.x.dtype)
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

        # Initial states may be one tensor, and both biases are parts of one: torch rejects inputs that share memory.
        weights = [weight.clone() if weight.dim() == 1 else weight for weight in weights]
        found = scan_of(combine, [s.clone() for s in states], [x.contiguous(), *masks], weights)
        return [found[-1], *found[:-1]]


def _function(name: str, alphas: Any, betas: Any) -> Callable[[Tensor], Tensor]:
    activation = ACTIVATIONS[name]
    # Numbers are listed for the functions that have them, in order.
    numbers = [next(given, default) for given, default in zip((alphas, betas), activation.defaults, strict=False)]
    return lambda x: activation.function(x, *numbers)


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


def _torch_weights(layer: Layer, order: Sequence[int]) -> list[Tensor]:
    weights = []
    for i in range(layer.directions):
        weights += [_ordered(each[i], order, layer.hidden) for each in (layer.w, layer.r, *layer.biases)]
    return weights


def _by_torch(layer: Layer) -> bool:
    """Whether torch's layers compute it; they have no single direction from the end, but time can be turned."""
    return layer.is_usual and layer.lengths is None


def _of_torch(layer: Layer, function: Any, states: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, ...]:
    turned = layer.reverse == [True]
    x = layer.x.flip(0) if turned else layer.x
    states = [state.contiguous() for state in states]
    y, *final = function(x.contiguous(), *states, weights, True, 1, layer.directions == 2, False)
    y = y.flip(0) if turned else y
    y = y.unflatten(-1, [layer.directions, layer.hidden]).transpose(1, 2)
    return layer.outputs(y, *final)


@operator("LSTM")
def lstm(node: Node, *inputs: Tensor | None) -> tuple[Tensor, ...]:
    return _lstm(node, inputs, None)


def _lstm(
    node: Node, inputs: Sequence[Tensor | None], rounded: Callable[[Tensor], Tensor] | None
) -> tuple[Tensor, ...]:
    """`rounded` is what the products see of the input, and of the state in each step; None: both as they are."""
    layer = Layer(node, inputs[:6], 4, ("sigmoid", "tanh", "tanh"))
    cells, peepholes = [*inputs[6:], None, None][:2]
    states = [layer.state(layer.initial), layer.state(cells)]
    if rounded is not None:
        layer.x = rounded(layer.x)
    elif _by_torch(layer) and peepholes is None and not node.get("input_forget", 0):
        weights = _torch_weights(layer, (0, 2, 3, 1))
        return _of_torch(layer, recurrent.lstm, states, weights)
    if peepholes is None:
        peepholes = torch.zeros([layer.directions, 3 * layer.hidden], dtype=layer.x.dtype)

    def step_of(direction: int) -> Step:
        f, g, k = layer.of(direction)

        def step(x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
            w, r, b, p = weights
            seen = h if rounded is None else rounded(h)
            i, o, forget, cell = (x @ w.t() + seen @ r.t() + b).chunk(4, -1)
            pi, po, pf = p.chunk(3, -1)
            i = f(layer.clipped(i + pi * c))
            forget = 1 - i if node.get("input_forget", 0) else f(layer.clipped(forget + pf * c))
            new = forget * c + i * g(layer.clipped(cell))
            o = f(layer.clipped(o + po * new))
            return o * k(layer.clipped(new)), new

        return step

    return layer.outputs(*layer.run(step_of, states, [layer.w, layer.r, layer.bias, peepholes]))


@operator("DynamicQuantizeLSTM", domain=CONTRIB)
def dynamic_quantize_lstm(node: Node, *inputs: Tensor | None) -> tuple[Tensor, ...]:
    """An LSTM with weights in 8 bits, of which columns are gates; the input and each state are rounded to 8 bits."""
    x, w, r, *rest = inputs
    w_scale, w_zero, r_scale, r_zero = [*rest, *[None] * 9][5:9]
    if w is None or r is None or w_scale is None or r_scale is None:
        raise node.error("it has no weights, or no scales")
    weights = [_columns(w, w_scale, w_zero), _columns(r, r_scale, r_zero)]
    return _lstm(node, [x, *weights, *rest[:5]], lambda values: dequantized(*dynamic_quantize_linear(node, values)))


def _columns(q: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Weights [directions, gates * hidden, inputs] from those in 8 bits, [directions, inputs, gates * hidden].

    `scale` and `zero` are of directions, or [directions, gates * hidden].
    """
    shape = [scale.shape[0], 1, -1]
    values = dequantized(q, scale.reshape(shape), None if zero is None else zero.reshape(shape))
    return values.transpose(1, 2)


@operator("GRU")
def gru(node: Node, *inputs: Tensor | None) -> tuple[Tensor, ...]:
    layer = Layer(node, inputs, 3, ("sigmoid", "tanh"))
    state = layer.state(layer.initial)
    after = bool(node.get("linear_before_reset", 0))
    if _by_torch(layer) and after:
        weights = _torch_weights(layer, (1, 0, 2))
        return _of_torch(layer, recurrent.gru, [state], weights)

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

    return layer.outputs(*layer.run(step_of, [state], [layer.w, layer.r, *layer.biases]))


def _rnn(x: Tensor, h0: Tensor, weights: list[Tensor], *how: Any) -> tuple[Tensor, ...]:
    has_biases, layers, both, first = how
    return torch.rnn_tanh(x, h0, weights, has_biases, layers, 0.0, False, both, first)


@operator("RNN")
def rnn(node: Node, *inputs: Tensor | None) -> tuple[Tensor, ...]:
    layer = Layer(node, inputs, 1, ("tanh",))
    state = layer.state(layer.initial)
    if _by_torch(layer):
        weights = _torch_weights(layer, (0,))
        return _of_torch(layer, _rnn, [state], weights)

    def step_of(direction: int) -> Step:
        (f,) = layer.of(direction)

        def step(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
            w, r, b = weights
            return (f(layer.clipped(x @ w.t() + h @ r.t() + b)),)

        return step

    return layer.outputs(*layer.run(step_of, [state], [layer.w, layer.r, layer.bias]))
