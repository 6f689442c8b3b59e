"""Captures LSTM and GRU whole.

torch traces them by running their steps, which fixes the number of steps to the example's. While a model is captured,
nn.LSTM and nn.GRU call aotpack operators instead, whose fake implementations know sizes only, so that batch and length
may be dynamic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patches import applied

_library = torch.library.Library("aotpack", "FRAGMENT")
_ARGUMENTS = "Tensor[] params, bool has_biases, int num_layers, bool bidirectional, bool batch_first"
_library.define(f"lstm(Tensor input, Tensor h0, Tensor c0, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)")
_library.define(f"gru(Tensor input, Tensor h0, {_ARGUMENTS}) -> (Tensor, Tensor)")


def _lstm(
    input: Tensor, h0: Tensor, c0: Tensor, params: list[Tensor], has_biases: bool, layers: int, both: bool, first: bool
) -> tuple[Tensor, Tensor, Tensor]:
    _check(input, [h0, c0], params, layers, both, first)
    y, h, c = torch.lstm(input, [h0, c0], params, has_biases, layers, 0.0, False, both, first)
    return _by_steps(y, first), h.contiguous(), c.contiguous()


def _gru(
    input: Tensor, h0: Tensor, params: list[Tensor], has_biases: bool, layers: int, both: bool, first: bool
) -> tuple[Tensor, Tensor]:
    _check(input, [h0], params, layers, both, first)
    y, h = torch.gru(input, h0, params, has_biases, layers, 0.0, False, both, first)
    return _by_steps(y, first), h.contiguous()


def _check(input: Tensor, states: list[Tensor], params: list[Tensor], layers: int, both: bool, first: bool) -> None:
    """torch itself reads beyond inputs and states of other sizes; nn.LSTM and nn.GRU compare them before the call."""
    _check_size("features of the input", input.shape[2], params[0].shape[1])
    for state in states:
        _check_size("layers and directions of the state", state.shape[0], layers * (2 if both else 1))
        _check_size("batch of the state", state.shape[1], input.shape[0 if first else 1])
        _check_size("features of the state", state.shape[2], params[1].shape[1])


def _check_size(what: str, found: int, wanted: int) -> None:
    torch._check(found == wanted, lambda: f"{what}: {found}, not {wanted}")


def _by_steps(y: Tensor, first: bool) -> Tensor:
    return y.transpose(0, 1).contiguous().transpose(0, 1) if first else y.contiguous()


def _output(input: Tensor, state: Tensor, both: bool, first: bool) -> Tensor:
    sizes = (*input.shape[:2], state.shape[2] * (2 if both else 1))
    if not first:
        return input.new_empty(sizes)
    # Computed step by step: lies as [steps, batch, features].
    return input.new_empty((sizes[1], sizes[0], sizes[2])).transpose(0, 1)


def _lstm_fake(
    input: Tensor, h0: Tensor, c0: Tensor, params: list[Tensor], has_biases: bool, layers: int, both: bool, first: bool
) -> tuple[Tensor, Tensor, Tensor]:
    _check(input, [h0, c0], params, layers, both, first)
    return _output(input, h0, both, first), torch.empty_like(h0), torch.empty_like(c0)


def _gru_fake(
    input: Tensor, h0: Tensor, params: list[Tensor], has_biases: bool, layers: int, both: bool, first: bool
) -> tuple[Tensor, Tensor]:
    _check(input, [h0], params, layers, both, first)
    return _output(input, h0, both, first), torch.empty_like(h0)


_library.impl("lstm", _lstm, "CompositeExplicitAutograd")
_library.impl("gru", _gru, "CompositeExplicitAutograd")
torch.library.register_fake("aotpack::lstm", _lstm_fake, lib=_library)
torch.library.register_fake("aotpack::gru", _gru_fake, lib=_library)

lstm = torch.ops.aotpack.lstm.default
gru = torch.ops.aotpack.gru.default


class _Functions:
    """Stands in for torch._VF inside torch.nn.modules.rnn."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def lstm(self, input: Tensor, *arguments: Any) -> Any:
        if not _plain(arguments, weights_per_layer=4) or not isinstance(arguments[0], (list, tuple)):
            return self._original.lstm(input, *arguments)
        (h0, c0), params, has_biases, layers, _, _, both, first = arguments
        return lstm(input, h0, c0, params, has_biases, layers, both, first)

    def gru(self, input: Tensor, *arguments: Any) -> Any:
        if not _plain(arguments, weights_per_layer=4):
            return self._original.gru(input, *arguments)
        h0, params, has_biases, layers, _, _, both, first = arguments
        return gru(input, h0, params, has_biases, layers, both, first)


def _plain(arguments: tuple[Any, ...], weights_per_layer: int) -> bool:
    """A padded, batched call at inference, without projections."""
    if len(arguments) != 8 or not isinstance(arguments[1], (list, tuple)):
        return False  # packed sequences have another signature
    _, params, has_biases, layers, dropout, training, both, _ = arguments
    expected = (weights_per_layer if has_biases else 2) * layers * (2 if both else 1)
    return len(params) == expected and not (training and dropout)


@contextlib.contextmanager
def captured_whole() -> Iterator[None]:
    """While active, nn.LSTM and nn.GRU are captured as one operator each."""
    with applied({places.VF_OF_RNN: _Functions}):
        yield
