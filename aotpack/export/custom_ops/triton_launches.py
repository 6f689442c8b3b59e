"""Launches of the user's Triton kernels, as operators in a program.

torch.export has no place for a kernel. While a model is captured, each launch becomes a call of an operator
`aotpack_triton::<kernel>` that returns new values of the tensors that the kernel writes to; these are then copied into
the tensors. On CUDA the operator is the kernel (torch_compat/inductor/cuda/user_kernels.py). Elsewhere it has no
kernel: programs run it in Triton's interpreter, which is how the example call gets its answer.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.library
from torch import Tensor

from aotpack.errors import CaptureError
from aotpack.export.ir.rewriter import has_order
from aotpack.export.symbolic_shapes.hints import size_hint
from aotpack.export.torch_compat.operators import OpOverload
from aotpack.export.torch_compat.tensors import storage_id
from aotpack.export.torch_compat.triton.launches import (
    Configuration,
    Launch,
    interpreted,
    kernel_name,
    launches_caught,
)
from aotpack.export.torch_compat.triton.written import written

NAMESPACE = "aotpack_triton"

_library = torch.library.Library(NAMESPACE, "DEF")


@dataclass(frozen=True)
class LaunchOperator:
    """An operator that stands for launches of one kernel.

    Its arguments are the tensors, then the numbers that are not constants, and the sizes of the grids, three for each
    configuration. It returns the tensors of `written`.

    Attributes:
        operator: the operator.
        name: what users call it: the operator that launches the kernel, or else the kernel.
        launch: constants; the values of tensors and numbers are meaningless.
        tensors: for each tensor argument the parameters of the kernel that get it.
        orders: for each tensor argument the order of its dims in memory, outermost first; None where it has holes or
            overlaps.
        numbers: the parameters that get the other arguments.
        written: which tensor arguments the kernel writes to.
    """

    operator: OpOverload
    name: str
    launch: Launch
    tensors: tuple[tuple[str, ...], ...]
    orders: tuple[tuple[int, ...] | None, ...]
    numbers: tuple[str, ...]
    written: tuple[int, ...]

    def bound(self, operands: Sequence[Any]) -> Launch:
        """The launch with the arguments of a call of the operator."""
        tensors, rest = operands[: len(self.tensors)], operands[len(self.tensors) :]
        numbers, sizes = rest[: len(self.numbers)], rest[len(self.numbers) :]
        arguments = dict(self.launch.arguments)
        for names, tensor in zip(self.tensors, tensors, strict=True):
            arguments.update(dict.fromkeys(names, tensor))
        arguments.update(zip(self.numbers, numbers, strict=True))
        grids = [tuple(sizes[i : i + 3]) for i in range(0, len(sizes), 3)]
        known = zip(self.launch.configurations, grids, strict=True)
        return replace(
            self.launch, arguments=arguments, configurations=tuple(replace(c, grid=grid) for c, grid in known)
        )


_known: dict[Any, LaunchOperator] = {}
_by_operator: dict[OpOverload, LaunchOperator] = {}
# The operators of the user that are being traced, innermost last.
_callers: list[str] = []


def launch_operators() -> dict[OpOverload, LaunchOperator]:
    """All of them."""
    return dict(_by_operator)


@contextlib.contextmanager
def launches_traced() -> Iterator[None]:
    """While active, launches on fake tensors call operators, and those on tensors of the CPU are interpreted."""
    with launches_caught(_launch):
        yield


@contextlib.contextmanager
def launched_by(operator: str) -> Iterator[None]:
    """While active, launches are those of this operator of the user, in reports."""
    _callers.append(operator)
    try:
        yield
    finally:
        _callers.pop()


def _launch(launch: Launch) -> None:
    name = kernel_name(launch.kernel)
    tensors, numbers = _operands(launch)
    names = written(launch)
    places = tuple(i for i, group in enumerate(tensors) if set(group) & set(names))
    if not places:
        # It has no effect.
        return
    _refuse_aliases(name, launch, tensors, places)
    known = _operator(launch, tensors, numbers, places)
    values = [launch.arguments[group[0]] for group in tensors]
    sizes = [size for configuration in launch.configurations for size in configuration.grid]
    results: Any = known.operator(*values, *(launch.arguments[name] for name in numbers), *sizes)
    many = (results,) if isinstance(results, Tensor) else results
    for place, result in zip(places, many, strict=True):
        values[place].copy_(result)


def _operands(launch: Launch) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """The parameters that get each tensor, and those that get numbers that are not constants."""
    tensors: dict[int, list[str]] = {}
    numbers = []
    for name, value in launch.arguments.items():
        if isinstance(value, Tensor):
            tensors.setdefault(id(value), []).append(name)
        elif isinstance(value, (torch.SymInt, torch.SymFloat)):
            numbers.append(name)
    return tuple(tuple(names) for names in tensors.values()), tuple(numbers)


def _refuse_aliases(name: str, launch: Launch, tensors: Sequence[Sequence[str]], places: Sequence[int]) -> None:
    values = [launch.arguments[group[0]] for group in tensors]
    for place in places:
        sizes, strides = _ints(values[place].shape), values[place].stride()
        if any(stride == 0 and size != 1 for size, stride in zip(sizes, strides, strict=True)):
            raise CaptureError(f"the Triton kernel {name} writes to {tensors[place][0]!r}, an expanded tensor")
        for other, value in enumerate(values):
            if other != place and storage_id(value) == storage_id(values[place]):
                raise CaptureError(
                    f"the Triton kernel {name} writes to {tensors[place][0]!r}, which shares memory with its argument "
                    f"{tensors[other][0]!r}",
                    hint="pass the same tensor for both, or a copy",
                )


def _ints(sizes: Any) -> list[int]:
    return [size if isinstance(size, int) else 2 for size in sizes]


def _operator(
    launch: Launch, tensors: tuple[tuple[str, ...], ...], numbers: tuple[str, ...], places: tuple[int, ...]
) -> LaunchOperator:
    values = [launch.arguments[group[0]] for group in tensors]
    name = _callers[0] if _callers else kernel_name(launch.kernel)
    constants = {k: v for k, v in launch.arguments.items() if not isinstance(v, Tensor) and k not in numbers}
    orders = tuple(_order(value) for value in values)
    kinds = tuple(type(launch.arguments[number]) for number in numbers)
    ways = tuple((_text(c.constants), _text(c.options)) for c in launch.configurations)
    identity = (
        id(launch.kernel),
        id(launch.tuner),
        name,
        _text(constants),
        ways,
        tensors,
        orders,
        numbers,
        kinds,
        places,
    )
    if identity not in _known:
        unset = (0, 0, 0)
        kept = replace(
            launch,
            arguments={**dict.fromkeys(launch.arguments), **constants},
            configurations=tuple(Configuration(c.constants, c.options, unset) for c in launch.configurations),
        )
        operator = _define(name, len(tensors), kinds, 3 * len(ways), places)
        known = LaunchOperator(operator, name, kept, tensors, orders, numbers, places)
        _known[identity] = _by_operator[operator] = known
    return _known[identity]


def _text(values: dict[str, Any]) -> str:
    return repr([(name, type(value).__name__, value) for name, value in values.items()])


def _order(value: Tensor) -> tuple[int, ...] | None:
    strides = [size_hint(stride) for stride in value.stride()]
    order = sorted(range(value.dim()), key=lambda d: (-strides[d], d))
    return tuple(order) if has_order(value, order) else None


def _define(name: str, tensors: int, kinds: Sequence[type], sizes: int, places: Sequence[int]) -> OpOverload:
    base = re.sub(r"\W+", "_", name)
    number, unique = 1, base
    while hasattr(getattr(torch.ops, NAMESPACE), unique):
        number += 1
        unique = f"{base}_{number}"
    parameters = [
        *(f"Tensor t{i}" for i in range(tensors)),
        *(f"{'float' if kind is torch.SymFloat else 'SymInt'} n{i}" for i, kind in enumerate(kinds)),
        *(f"SymInt grid{i}" for i in range(sizes)),
    ]
    results = "Tensor" if len(places) == 1 else f"({', '.join(['Tensor'] * len(places))})"
    _library.define(f"{unique}({', '.join(parameters)}) -> {results}", tags=(torch.Tag.pt2_compliant_tag,))

    def run(*operands: Any) -> Any:
        known = _by_operator[getattr(getattr(torch.ops, NAMESPACE), unique).default]
        filled = list(operands)
        for place in places:
            filled[place] = _like(operands[place]).copy_(operands[place])
        interpreted(known.bound(filled))
        return _results([filled[place] for place in places])

    def fake(*operands: Any) -> Any:
        return _results([_like(operands[place]) for place in places])

    _library.impl(unique, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{unique}", fake, lib=_library)
    operator: OpOverload = getattr(getattr(torch.ops, NAMESPACE), unique).default
    return operator


def _like(value: Tensor) -> Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def _results(values: list[Tensor]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def user_name(operator: str) -> str:
    """What users call an operator that code generation names `aotpack_triton.<name>`; others keep their names."""
    known = next((k for k in _by_operator.values() if str(k.operator).removesuffix(".default") == operator), None)
    return operator if known is None else f"{known.name.replace('::', '.')} (a Triton kernel)"
