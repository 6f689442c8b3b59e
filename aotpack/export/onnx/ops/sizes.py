"""Arithmetic of numbers that are known at capture: sizes of inputs and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import arithmetic, operator
from aotpack.export.onnx.base.values import MOST, Known
from aotpack.export.torch_compat.symbolic_shapes import statically_known_true

_INTEGERS = (torch.int64, torch.int32)
_NUMBERS = (*_INTEGERS, torch.float32, torch.float64)


@operator("Shape")
def shape(node: Node, x: torch.Tensor) -> Known:
    start, end = node.get("start", 0), node.get("end")
    return Known.of(list(x.shape)[slice(start, end)])


@operator("Size")
def size(node: Node, x: torch.Tensor) -> Known:
    return Known.of(math.prod(x.shape))


def _elementwise(function: Callable[..., Any], *values: Known) -> np.ndarray[Any, Any]:
    arrays = np.broadcast_arrays(*(v.values for v in values))
    made = np.empty(arrays[0].shape, dtype=object)
    flat = made.reshape(-1)
    for i, each in enumerate(zip(*(a.reshape(-1) for a in arrays), strict=True)):
        flat[i] = function(*each)
    return flat.reshape(made.shape)


def _number(value: Any, dtype: torch.dtype) -> Any:
    """A number as the dtype holds it."""
    if isinstance(value, (int, float)) and dtype == torch.float32:
        with np.errstate(all="ignore"):
            return float(np.float32(value))
    if isinstance(value, int) and dtype == torch.int32:
        return (value + 2**31) % 2**32 - 2**31
    if isinstance(value, int) and dtype == torch.int64:
        return (value + 2**63) % 2**64 - 2**63
    return value


def _quotient(a: Any, b: Any) -> Any:
    """Division as integers do it in ONNX: towards zero. Sizes are not negative."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return a // b


def _binary(name: str, of_integers: Callable[..., Any], of_floats: Callable[..., Any]) -> None:
    @arithmetic(name)
    def compute(node: Node, *inputs: Known) -> Any:
        if not _computable(*inputs) or len({v.dtype for v in inputs}) != 1 or "axis" in node.attributes:
            return NotImplemented
        dtype = inputs[0].dtype
        function = of_integers if dtype in _INTEGERS else of_floats
        try:
            result = inputs[0].values
            for other in inputs[1:]:
                result = _elementwise(lambda a, b: _number(function(a, b), dtype), Known(result, dtype), other)
        except (ArithmeticError, ValueError):
            return NotImplemented
        return Known(result, dtype)


def _computable(*inputs: Known | None) -> bool:
    return all(v is not None and v.dtype in _NUMBERS and v.values.size <= MOST for v in inputs)


_binary("Add", lambda a, b: a + b, lambda a, b: a + b)
_binary("Sub", lambda a, b: a - b, lambda a, b: a - b)
_binary("Mul", lambda a, b: a * b, lambda a, b: a * b)
_binary("Div", _quotient, lambda a, b: a / b)
_binary("Max", torch.sym_max, torch.sym_max)
_binary("Min", torch.sym_min, torch.sym_min)


@arithmetic("Mod")
def mod(node: Node, a: Known, b: Known) -> Any:
    if node.get("fmod") or a.dtype not in _INTEGERS or b.dtype not in _INTEGERS:
        return NotImplemented
    try:
        return Known(_elementwise(lambda x, y: x % y, a, b), a.dtype)
    except ArithmeticError:
        return NotImplemented


@arithmetic("Neg", "Abs", "Floor", "Ceil", "Sqrt", "Identity", "Round")
def unary(node: Node, x: Known) -> Any:
    if node.op == "Identity":
        return x
    if not _computable(x):
        return NotImplemented
    functions: dict[str, Callable[[Any], Any]] = {
        "Neg": lambda a: -a,
        "Abs": abs,
        "Floor": lambda a: torch.sym_float(math.floor(a)),
        "Ceil": lambda a: torch.sym_float(math.ceil(a)),
        "Sqrt": lambda a: math.sqrt(a) if isinstance(a, float) else torch.sym_sqrt(a),
        "Round": lambda a: torch.sym_float(round(a)),
    }
    if node.op in ("Floor", "Ceil", "Sqrt", "Round") and x.dtype in _INTEGERS:
        return NotImplemented
    try:
        return Known(_elementwise(lambda a: _number(functions[node.op](a), x.dtype), x), x.dtype)
    except (ArithmeticError, ValueError):
        return NotImplemented


@arithmetic("Cast")
def cast(node: Node, x: Known) -> Any:
    dtype = dtypes.torch_dtype(node.require("to"))
    if dtype == x.dtype:
        return x
    if x.dtype in _NUMBERS and dtype in _INTEGERS:
        if any(isinstance(v, float) and not abs(v) < 2**62 for v in x.flat()):
            return NotImplemented
        return Known(_elementwise(lambda a: _number(_whole(a), dtype), x), dtype)
    if x.dtype in _NUMBERS and dtype in (torch.float32, torch.float64):
        return Known(_elementwise(lambda a: _number(torch.sym_float(a), dtype), x), dtype)
    if dtype == torch.bool and x.dtype in _INTEGERS:
        return Known(_elementwise(lambda a: a != 0, x), dtype)
    if x.dtype == torch.bool and dtype in _INTEGERS and x.is_plain():
        return Known(_elementwise(int, x), dtype)
    return NotImplemented


def _whole(value: Any) -> Any:
    if isinstance(value, (int, torch.SymInt)):
        return value
    return torch.sym_int(value)


@arithmetic("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
def compare(node: Node, a: Known, b: Known) -> Any:
    if a.dtype not in _INTEGERS or b.dtype not in _INTEGERS or "axis" in node.attributes:
        return NotImplemented
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "Equal": lambda x, y: x == y,
        "Less": lambda x, y: x < y,
        "Greater": lambda x, y: x > y,
        "LessOrEqual": lambda x, y: x <= y,
        "GreaterOrEqual": lambda x, y: x >= y,
    }
    return Known(_elementwise(lambda x, y: _decided(functions[node.op](x, y)), a, b), torch.bool)


def _decided(value: Any) -> Any:
    """A comparison of sizes as a bool, where it holds or fails for all of them: no size is negative."""
    if isinstance(value, torch.SymBool):
        if statically_known_true(value):
            return True
        if statically_known_true(torch.sym_not(value)):
            return False
    return value


@arithmetic("Not")
def negation(node: Node, x: Known) -> Any:
    return Known(_elementwise(lambda a: torch.sym_not(a) if isinstance(a, torch.SymBool) else not a, x), torch.bool)


@arithmetic("And", "Or")
def connective(node: Node, a: Known, b: Known) -> Any:
    if "axis" in node.attributes or not (a.is_plain() and b.is_plain()):
        return NotImplemented
    both = node.op == "And"
    return Known(_elementwise(lambda x, y: (x and y) if both else (x or y), a, b), torch.bool)


@arithmetic("Where")
def where(node: Node, condition: Known, a: Known, b: Known) -> Any:
    if a.dtype != b.dtype or not _computable(a, b):
        return NotImplemented
    try:
        values = _elementwise(_chosen, condition, a, b)
    except TypeError:
        return NotImplemented
    return Known(values, a.dtype)


def _chosen(condition: Any, a: Any, b: Any) -> Any:
    return torch.sym_ite(condition, a, b) if isinstance(condition, torch.SymBool) else a if condition else b


# ---- moves ----------------------------------------------------------------------------------------------------------


def _moved(x: Known, values: np.ndarray[Any, Any]) -> Known:
    return Known(values, x.dtype)


@arithmetic("Gather")
def gather(node: Node, x: Known, indices: Known) -> Any:
    if not indices.is_plain():
        return NotImplemented
    axis = node.get("axis", 0)
    count = x.shape[axis]
    where = np.array([int(i) for i in indices.flat()], dtype=np.int64).reshape(indices.shape)
    if where.size and not (-count <= where.min() and where.max() < count):
        raise node.error(f"an index is out of range: the axis has {count} elements")
    return _moved(x, np.asarray(np.take(x.values, where, axis=axis), dtype=object))


@arithmetic("Concat")
def concat(node: Node, *inputs: Known) -> Any:
    if len({v.dtype for v in inputs}) != 1 or sum(v.values.size for v in inputs) > MOST:
        return NotImplemented
    return _moved(inputs[0], np.concatenate([v.values for v in inputs], axis=node.get("axis", 1)))


@arithmetic("Unsqueeze")
def unsqueeze(node: Node, x: Known, axes: Known | None = None) -> Any:
    wanted = node.get("axes") if axes is None else [int(a) for a in axes.flat()]
    rank = len(x.shape) + len(wanted)
    places = {a % rank for a in wanted}
    sizes = iter(x.shape)
    return _moved(x, x.values.reshape([1 if i in places else next(sizes) for i in range(rank)]))


@arithmetic("Squeeze")
def squeeze(node: Node, x: Known, axes: Known | None = None) -> Any:
    wanted = node.get("axes") if axes is None else [int(a) for a in axes.flat()]
    return _moved(x, np.squeeze(x.values, axis=None if wanted is None else tuple(wanted)))


@arithmetic("Slice")
def slice_(node: Node, x: Known, *how: Known | None) -> Any:
    numbers: list[list[Any] | None]
    if how:
        if any(v is not None and not v.is_plain() for v in how):
            return NotImplemented
        numbers = [None if v is None else v.flat() for v in how]
    else:
        numbers = [node.get("starts"), node.get("ends"), node.get("axes")]
    starts, ends, axes, steps = [*numbers, None, None][:4]
    assert starts is not None
    assert ends is not None
    index: list[slice] = [slice(None)] * len(x.shape)
    for i, axis in enumerate(axes or range(len(starts))):
        step = steps[i] if steps else 1
        count, end = x.shape[axis], int(ends[i])
        if step < 0 and end < -count:
            end = -count - 1
        index[axis] = slice(int(starts[i]), None if step < 0 and end < -count else end, step)
    return _moved(x, x.values[tuple(index)])


@arithmetic("Reshape", "Flatten")
def reshape(node: Node, x: Known, shape: Known | None = None) -> Any:
    if node.op == "Flatten":
        axis = node.get("axis", 1)
        axis = axis + len(x.shape) if axis < 0 else axis
        return _moved(x, x.values.reshape(math.prod(x.shape[:axis]), -1))
    wanted = node.get("shape") if shape is None else shape.flat()
    if any(not isinstance(v, int) for v in wanted):
        return NotImplemented
    if not node.get("allowzero", 0):
        wanted = [x.shape[i] if v == 0 else v for i, v in enumerate(wanted)]
    return _moved(x, x.values.reshape(wanted))


@arithmetic("Expand")
def expand(node: Node, x: Known, shape: Known) -> Any:
    if any(not isinstance(v, int) for v in shape.flat()) or math.prod(shape.flat()) > MOST:
        return NotImplemented
    return _moved(x, np.broadcast_to(x.values, np.broadcast_shapes(x.shape, tuple(shape.flat()))))


@arithmetic("Transpose")
def transpose(node: Node, x: Known) -> Any:
    return _moved(x, np.transpose(x.values, node.get("perm")))


@arithmetic("Split")
def split(node: Node, x: Known, sizes: Known | None = None) -> Any:
    axis = node.get("axis", 0)
    parts = node.get("split") if sizes is None else sizes.flat()
    count = x.shape[axis]
    if parts is None:
        each = -(-count // len(node.outputs))
        parts = [min(each, count - i * each) for i in range(len(node.outputs))]
    if any(not isinstance(v, int) for v in parts) or sum(parts) != count:
        return NotImplemented
    ends = np.cumsum(parts)[:-1]
    return tuple(_moved(x, part) for part in np.split(x.values, ends, axis=axis))


@arithmetic("ConstantOfShape")
def constant_of_shape(node: Node, shape: Known) -> Any:
    if any(not isinstance(v, int) for v in shape.flat()) or math.prod(shape.flat()) > MOST:
        return NotImplemented
    value = node.get("value")
    dtype = torch.float32 if value is None else value.dtype
    if dtype not in _NUMBERS:
        return NotImplemented
    return Known(np.full(shape.flat(), 0.0 if value is None else value.item(), dtype=object), dtype)


@arithmetic("Range")
def range_(node: Node, start: Known, limit: Known, delta: Known) -> Any:
    numbers = [v.values.item() for v in (start, limit, delta)]
    if start.dtype not in _INTEGERS or any(not isinstance(v, int) for v in numbers) or numbers[2] == 0:
        return NotImplemented
    made = range(*numbers)
    return Known.of(list(made), start.dtype) if len(made) <= MOST else NotImplemented


@arithmetic("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")
def reduce(node: Node, x: Known, axes: Known | None = None) -> Any:
    wanted = node.get("axes") if axes is None else axes.flat()
    if x.dtype not in _INTEGERS or len(x.shape) != 1 or (wanted is None and axes is not None):
        return NotImplemented
    if wanted is not None and [a % 1 for a in wanted] != [0]:
        return NotImplemented
    values = x.flat()
    if not values:
        return NotImplemented
    result = values[0]
    for value in values[1:]:
        match node.op:
            case "ReduceProd":
                result = result * value
            case "ReduceSum":
                result = result + value
            case "ReduceMax":
                result = torch.sym_max(result, value)
            case _:
                result = torch.sym_min(result, value)
    return Known.of([result] if node.get("keepdims", 1) else result, x.dtype)
