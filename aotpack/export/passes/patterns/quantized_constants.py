"""Numbers, scales and offsets of a quantized matrix, computed when the archive is packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.fx
from torch.fx.node import map_arg

from aotpack.export.ir.slots import Slot, filled
from aotpack.export.ops.quantized_linear import pack_numbers
from aotpack.export.ops.weight_packing import pack_linear
from aotpack.export.passes.patterns.chosen_groups import ordered
from aotpack.export.passes.patterns.moves import MOVES, RESHAPES
from aotpack.export.passes.patterns.quantized_matrix import PRODUCTS, QuantizedMatrix

aten = torch.ops.aten

Kind = Literal["numbers", "scale", "offset", "order", "bounds"]


@dataclass(frozen=True)
class _Call:
    """`position` is that of the argument on the path; None for calls beside it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    position: int | None


@dataclass(frozen=True)
class Recipe:
    """A recipe of one of these, in panels as the kernel reads them.

    Attributes:
        kind: which of them.
        calls: from the constants to the matrix; those on the path come last.
        numbers: the slot of the numbers.
        index: that of the index of a choice of groups, and how many groups there are; None where they are equal.
        rows: whether the matrix is [n, k], not [k, n].
        low, bits, group: as in `QuantizedMatrix`.
    """

    kind: Kind
    calls: tuple[_Call, ...]
    numbers: int
    index: tuple[int, int] | None
    rows: bool
    low: int
    bits: int
    group: int

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        values: list[Any] = list(tensors)
        path: torch.Tensor | None = None
        for call in self.calls:
            if call.position is None:
                values.append(call.function(*filled(call.args, values), **filled(call.kwargs, values)))
                continue
            if path is None:
                path = self._beginning(values[self.numbers])
            path = self._step(call, path, values)
            values.append(path)
        if path is None:
            raise RuntimeError("a quantized matrix begins and ends at its numbers")
        matrix = path if self.rows else path.t()
        if self.index is None:
            chosen = matrix if self.kind == "numbers" else matrix[:, :: self.group]
        else:
            slot, groups = self.index
            order, bounds = ordered(values[slot], groups)
            if self.kind in ("order", "bounds"):
                return order if self.kind == "order" else bounds
            # An empty group has what another one has.
            first = bounds[:-1].clamp(max=len(order) - 1)
            chosen = matrix[:, order if self.kind == "numbers" else order[first]]
        return pack_numbers(chosen, self.low, self.bits) if self.kind == "numbers" else pack_linear(chosen)

    def _beginning(self, numbers: torch.Tensor) -> torch.Tensor:
        if self.kind not in ("scale", "offset"):
            return numbers
        middle = self.low + (1 << (self.bits - 1))
        return torch.full(numbers.shape, 1 if self.kind == "scale" else middle, dtype=torch.float32)

    def _step(self, call: _Call, path: torch.Tensor, values: Sequence[Any]) -> torch.Tensor:
        arguments: list[Any] = list(filled(call.args, values))
        arguments[call.position or 0] = path
        if call.function in MOVES:
            # Ones and zeros may have other strides than what they stand for.
            function: Any = aten.reshape.default if call.function in RESHAPES[:3] else call.function
            moved: torch.Tensor = function(*arguments, **filled(call.kwargs, values))
            return moved
        if self.kind not in ("scale", "offset") or len(arguments) < 2 or isinstance(arguments[1], torch.dtype):
            return path
        first, second = (v.to(torch.float32) if isinstance(v, torch.Tensor) else v for v in arguments[:2])
        if call.function in PRODUCTS:
            return first * second if call.function in PRODUCTS[:2] else first / second
        difference = call.function in (aten.sub.Tensor, aten.sub.Scalar)
        if self.kind == "scale":
            shape = path.shape if not isinstance(arguments[1 - (call.position or 0)], torch.Tensor) else None
            whole = torch.broadcast_shapes(*(v.shape for v in (first, second) if isinstance(v, torch.Tensor)))
            path = path.expand(shape or whole)
            return -path if difference and call.position == 1 else path
        return first - second if difference else first + second


def recipes(found: QuantizedMatrix, rows: bool, roots: Sequence[torch.fx.Node]) -> Callable[[Kind], Recipe]:
    """The recipes, of the constants `roots`."""
    slots = {root: Slot(number) for number, root in enumerate(roots)}
    on_path = dict(found.path)
    beside: list[_Call] = []

    def visit(node: torch.fx.Node) -> None:
        if node in slots:
            return
        for source in node.all_input_nodes:
            visit(source)
        beside.append(_call(node, None, slots))
        slots[node] = Slot(len(slots))

    visit(found.numbers)
    if found.choice is not None:
        visit(found.choice.index)
    for node, position in on_path.items():
        for at, argument in enumerate(node.args):
            if isinstance(argument, torch.fx.Node) and at != position:
                visit(argument)
    calls = list(beside)
    for node, position in on_path.items():
        calls.append(_call(node, position, slots))
        slots[node] = Slot(len(slots))
    numbers = slots[found.numbers].number
    index = None if found.choice is None else (slots[found.choice.index].number, found.choice.groups)
    return lambda kind: Recipe(kind, tuple(calls), numbers, index, rows, found.low, found.bits, found.group)


def _call(node: torch.fx.Node, position: int | None, slots: dict[torch.fx.Node, Slot]) -> _Call:
    if not callable(node.target):
        raise TypeError(f"{node.name} calls {node.target}, which is not a function")
    args, kwargs = map_arg((node.args, node.kwargs), slots.__getitem__)  # type: ignore[arg-type]
    return _Call(node.target, args, kwargs, position)
