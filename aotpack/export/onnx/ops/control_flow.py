"""If, Loop and Scan.

Where the decision or the number of steps is known at capture, the graphs become part of the model. Elsewhere they are
the functions of torch's operators of control flow, which get all that they read from outside as operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from aotpack.export.onnx.base.errors import NotConstantError
from aotpack.export.onnx.base.graph import Graph, Node
from aotpack.export.onnx.base.run import OUTER, Runner
from aotpack.export.onnx.base.table import operator
from aotpack.export.onnx.base.values import Known, as_tensor
from aotpack.export.torch_compat.higher_order import cond_of, scan_of, while_loop_of

Tensor = torch.Tensor
# Steps of a loop that are written one after the other.
_UNROLLED = 16
_MANY = tuple(range(64))


class Operands:
    """Values that a function reads, as the operands of an operator that takes functions."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.flat: list[Any] = []
        self._makers = {name: self._add(value) for name, value in values.items()}

    def _add(self, value: Any) -> Callable[[Sequence[Any]], Any]:
        place = len(self.flat)
        if isinstance(value, list):
            makers = [self._add(each) for each in value]
            return lambda flat: [make(flat) for make in makers]
        if value is None:
            return lambda flat: None
        if isinstance(value, Known) and value.stored is None:
            if value.is_plain():
                return lambda flat: value
            symbolic = [i for i, v in enumerate(value.flat()) if not isinstance(v, (int, float, bool))]
            self.flat += [value.flat()[i] for i in symbolic]

            def make(flat: Sequence[Any]) -> Known:
                items = value.flat()
                for offset, i in enumerate(symbolic):
                    items[i] = flat[place + offset]
                return Known(np.array([*items, None], dtype=object)[:-1].reshape(value.shape), value.dtype)

            return make
        self.flat.append(as_tensor(value))
        if isinstance(value, Known):
            return lambda flat: Known(value.values, value.dtype, flat[place])
        return lambda flat: flat[place]

    def unpacked(self, flat: Sequence[Any]) -> dict[str, Any]:
        """The values, made of operands as a function gets them."""
        return {name: make(flat) for name, make in self._makers.items()}


def _decided(value: Any) -> bool | None:
    """What a condition is if it is known at capture."""
    if isinstance(value, Known) and value.is_plain():
        return bool(value.flat()[0])
    return None


def _pred(value: Any) -> Any:
    if isinstance(value, Known):
        return value.flat()[0]
    return value.reshape([])


def _of_rank(value: Any, like: Tensor) -> Any:
    """A value, shaped as `like` where both are a single number: files often have a dim of 1 too many there."""
    now = as_tensor(value)
    if isinstance(now, list) or now.dim() == like.dim():
        return now
    return now.reshape(like.shape) if all(isinstance(s, int) and s == 1 for s in (*now.shape, *like.shape)) else now


def _carried_on(new: Sequence[Any], old: Sequence[Tensor]) -> list[Tensor]:
    """What a step of a loop hands to the next."""
    return [_of_rank(value, like).clone() for value, like in zip(new, old, strict=True)]


class _DifferentRanksError(NotConstantError):
    """What the branches of an If return cannot be the results of one operator."""


@operator("If", known=(0,))
def if_(node: Node, condition: Any) -> tuple[Any, ...]:
    branches: list[Graph] = [node.require("then_branch"), node.require("else_branch")]
    outer: dict[str, Any] = node.get(OUTER, {})
    decided = _decided(condition)
    if decided is not None:
        return tuple(Runner(branches[0 if decided else 1])(outer))
    read = {name: outer[name] for graph in branches for name in graph.free}
    operands = Operands(read)
    # What the first branch returned.
    first: list[Tensor] = []

    def function(graph: Graph) -> Callable[..., tuple[Tensor, ...]]:
        def run(*flat: Any) -> tuple[Tensor, ...]:
            results = Runner(graph)(operands.unpacked(flat))
            if any(value is None or isinstance(value, list) for value in results):
                raise NotConstantError(
                    f"node {node.title}: its condition is not constant, and its branches return sequences or optionals"
                )
            tensors = tuple(as_tensor(value).clone() for value in results)
            if not first:
                first.extend(tensors)
            tensors = tuple(_of_rank(value, like) for value, like in zip(tensors, first, strict=True))
            if [(value.dim(), value.dtype) for value in tensors] != [(like.dim(), like.dtype) for like in first]:
                raise _DifferentRanksError(
                    f"node {node.title}: its condition is not constant, and its branches return tensors of different "
                    "ranks or dtypes"
                )
            return tensors

        return run

    try:
        return tuple(cond_of(_pred(condition), function(branches[0]), function(branches[1]), operands.flat))
    except _DifferentRanksError:
        if not isinstance(condition, Known):
            raise
        # A question about sizes: the archive is for those with the answer that the example gives.
        return tuple(Runner(branches[0 if bool(_pred(condition)) else 1])(outer))


class _Loop:
    """A Loop: its body, what it reads from outside, and its inputs."""

    def __init__(self, node: Node, carried: Sequence[Any]) -> None:
        self.node = node
        self.body: Graph = node.require("body")
        self.outer: dict[str, Any] = {name: node.get(OUTER, {})[name] for name in self.body.free}
        self.count = len(carried)
        self.runner = Runner(self.body)

    def step(self, i: Any, goes_on: Any, carried: Sequence[Any], outer: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """Whether it goes on, what it carries, and what it returns of the step."""
        values = {**outer, **dict(zip(self.body.inputs, (i, goes_on, *carried), strict=True))}
        new, *rest = self.runner(values)
        return new, rest[: self.count], rest[self.count :]


@operator("Loop", known=_MANY)
def loop(node: Node, trips: Any = None, condition: Any = None, *carried: Any) -> tuple[Any, ...]:
    body = _Loop(node, carried)
    start = True if condition is None else _decided(condition)
    limit = _limit(trips)
    scans = len(body.body.outputs) - 1 - body.count
    if start is False or limit == 0:
        if not scans:
            return tuple(carried)
    elif (start and isinstance(limit, int) and limit <= _UNROLLED) or any(isinstance(v, list) for v in carried):
        unrolled = _unrolled(body, limit, start, carried)
        if unrolled is not None:
            return unrolled
    return _looped(body, limit, trips, condition, carried)


def _limit(trips: Any) -> Any:
    """The number of steps: a number, "tensor", or None."""
    if trips is None:
        return None
    if isinstance(trips, Known):
        number = trips.flat()[0]
        return None if isinstance(number, int) and number >= 2**31 else number
    return "tensor"


def _unrolled(body: _Loop, limit: Any, start: bool | None, carried: Sequence[Any]) -> tuple[Any, ...] | None:
    """All steps one after the other; None if a condition is not known."""
    sequences = any(isinstance(value, list) for value in carried)
    if not start or not (isinstance(limit, int) or (limit is None and sequences)):
        raise NotConstantError(
            f"node {body.node.title}: it carries sequences, and the number of its steps is not known"
        )
    values, results = list(carried), []
    goes_on: Any = Known.of(True, torch.bool)
    i = 0
    while limit is None or i < limit:
        goes_on, values, found = body.step(Known.of(i), goes_on, values, body.outer)
        results.append([as_tensor(each) for each in found])
        i += 1
        decided = _decided(goes_on)
        if decided is None:
            if sequences:
                raise NotConstantError(f"node {body.node.title}: it carries sequences, and its condition is not known")
            return None
        if not decided:
            break
        if i > 10_000:
            raise body.node.error("it has more than 10000 steps")
    return (*values, *(torch.stack(each) for each in zip(*results, strict=True)))


def _looped(body: _Loop, limit: Any, trips: Any, condition: Any, carried: Sequence[Any]) -> tuple[Any, ...]:
    node = body.node
    tensors = [as_tensor(value).clone() for value in carried]
    operands = Operands(body.outer)
    start = torch.tensor(True) if condition is None else as_tensor(condition).reshape([]).to(torch.bool).clone()
    # What a step returns, and whether it leaves the condition as it is: from a step that computes nothing that is used.
    first = Known.of(0)
    marker = start.clone()
    goes_on, new, found = body.step(first.tensor(), marker, tensors, body.outer)
    replaced = False
    for at, value in enumerate(new):
        now, old = _of_rank(value, tensors[at]), tensors[at]
        if not isinstance(now, list) and (now.dtype, now.dim()) == (old.dtype, old.dim()):
            continue
        name = body.body.inputs[2 + at]
        if isinstance(now, list):
            raise node.error(f"{name} becomes a sequence in a step")
        if name in body.body.read:
            changed = f"from {old.dim()} dims of {old.dtype} to {now.dim()} dims of {now.dtype}"
            raise node.error(f"{name} changes in a step: {changed}")
        # No step reads what it was before.
        tensors[at], replaced = torch.zeros_like(now), True
    kept = goes_on is marker or _decided(goes_on) is True
    rows = [as_tensor(each) for each in found]
    if limit == "tensor":
        limit = trips.reshape([]).item() if rows else trips.reshape([])
    if rows and limit is None:
        limit = _counted(body, operands, start, tensors)
    if rows and not isinstance(limit, int):
        limit = torch.sym_max(limit, 0)
    buffers = [torch.zeros([limit, *row.shape], dtype=row.dtype) for row in rows]
    fixed = limit if isinstance(limit, int) else None
    # A number that the file states is part of the condition: operands are tensors and sizes of the call.
    bound = () if limit is None or fixed is not None else (limit,)

    def continues(i: Tensor, goes_on: Tensor, *rest: Any) -> Tensor:
        last = rest[-1] if bound else fixed
        return goes_on if last is None else goes_on & (i < last)

    def step(i: Tensor, goes_on: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        count = len(tensors)
        old, saved, flat = rest[:count], rest[count : count + len(rows)], rest[count + len(rows) :]
        again, new, found = body.step(i, goes_on, old, operands.unpacked(flat))
        filled = [
            each.index_copy(0, i.reshape(1), as_tensor(row).unsqueeze(0))
            for each, row in zip(saved, found, strict=True)
        ]
        going = as_tensor(again).reshape([]).to(torch.bool)
        return (i + 1, going.clone(), *_carried_on(new, old), *filled)

    begin = [torch.tensor(0, dtype=torch.int64), start, *tensors, *buffers]
    end = while_loop_of(continues, step, begin, [*operands.flat, *bound])
    steps, _, *values = end
    if replaced:
        torch._check(
            steps.item() >= 1, lambda: f"node {node.title}: it makes no step, and its results have other ranks"
        )
    results = values[len(tensors) :]
    if results and not (kept and condition is None):
        done = steps.item()
        torch._check(done >= 0)
        if isinstance(limit, int):
            torch._check(done <= limit)
        results = [each[:done] for each in results]
    return (*values[: len(tensors)], *results)


def _counted(body: _Loop, operands: Operands, start: Tensor, tensors: Sequence[Tensor]) -> Any:
    """How many steps a loop has that nothing else limits: it runs once for this."""

    def continues(i: Tensor, goes_on: Tensor, *rest: Any) -> Tensor:
        return goes_on.clone()

    def step(i: Tensor, goes_on: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        old, flat = rest[: len(tensors)], rest[len(tensors) :]
        again, new, _ = body.step(i, goes_on, old, operands.unpacked(flat))
        going = as_tensor(again).reshape([]).to(torch.bool)
        return (i + 1, going.clone(), *_carried_on(new, old))

    begin = [torch.tensor(0, dtype=torch.int64), start, *tensors]
    return while_loop_of(continues, step, begin, operands.flat)[0].item()


@operator("Scan", since=9, known=_MANY)
def scan(node: Node, *inputs: Any) -> tuple[Tensor, ...]:
    return _scanned(node, inputs, node.get("scan_input_axes"))


@operator("Scan", since=8, known=_MANY)
def scan_of_batches(node: Node, lengths: Any, *inputs: Any) -> tuple[Tensor, ...]:
    """Opset 8 has a first axis of batches, each scanned by itself."""
    if lengths is not None:
        raise node.error("scans of opset 8 with lengths of sequences are not supported")
    tensors = [as_tensor(value) for value in inputs]
    batches = tensors[0].shape[0]
    if not isinstance(batches, int):
        raise node.error("scans of opset 8 with a dynamic number of batches are not supported")
    found = [_scanned(node, [t[i] for t in tensors], None) for i in range(batches)]
    return tuple(torch.stack(each) for each in zip(*found, strict=True))


def _scanned(node: Node, inputs: Sequence[Any], axes: Sequence[int] | None) -> tuple[Tensor, ...]:
    body: Graph = node.require("body")
    count = node.require("num_scan_inputs")
    states = [as_tensor(value) for value in inputs[: len(inputs) - count]]
    backward = node.get("scan_input_directions", node.get("directions", [0] * count))
    xs = []
    for i, value in enumerate(inputs[len(inputs) - count :]):
        x = as_tensor(value).movedim(axes[i] if axes else 0, 0)
        xs.append((x.flip(0) if backward[i] else x).contiguous())
    outer = {name: node.get(OUTER, {})[name] for name in body.free}
    operands = Operands(outer)
    runner = Runner(body)

    def combine(*values: Any) -> list[Tensor]:
        given, flat = values[: len(inputs)], values[len(inputs) :]
        results = runner({**operands.unpacked(flat), **dict(zip(body.inputs, given, strict=True))})
        return [as_tensor(value).clone() for value in results]

    length = xs[0].shape[0]
    if isinstance(length, int) and length == 0:
        found = _no_steps(combine, states, xs, operands.flat)
    elif isinstance(length, int) and length <= _UNROLLED:
        found = _steps(combine, states, xs, operands.flat)
    else:
        found = list(scan_of(combine, [s.clone() for s in states], xs, operands.flat))
    results = found[len(states) :]
    turned = node.get("scan_output_directions", [0] * len(results))
    results = [y.flip(0) if turned[i] else y for i, y in enumerate(results)]
    places = node.get("scan_output_axes")
    results = [y.movedim(0, places[i]) if places else y for i, y in enumerate(results)]
    return (*found[: len(states)], *results)


def _no_steps(combine: Any, states: Sequence[Tensor], xs: Sequence[Tensor], flat: Sequence[Any]) -> list[Tensor]:
    """A scan of no steps: what it returns of steps has the shape of what a step would return."""
    rows = combine(*states, *(x.new_zeros(x.shape[1:]) for x in xs), *flat)[len(states) :]
    return [*states, *(row.new_empty([0, *row.shape]) for row in rows)]


def _steps(combine: Any, states: Sequence[Tensor], xs: Sequence[Tensor], flat: Sequence[Any]) -> list[Tensor]:
    """A scan of few steps, one after the other."""
    carried, rows = list(states), []
    for i in range(xs[0].shape[0]):
        found = combine(*carried, *(x[i] for x in xs), *flat)
        carried = found[: len(states)]
        rows.append(found[len(states) :])
    return [*carried, *(torch.stack(each) for each in zip(*rows, strict=True))]
