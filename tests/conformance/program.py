"""Cases as one module that is captured: each calls its operator, results are its tensors and numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from tests.conformance.samples import Case
from tests.conformance.task import BACKWARD

_RESULTS = (torch.Tensor, bool, int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass
class Call:
    """A case with what eager does.

    Attributes:
        op: the entry of the database.
        case: the case.
        mode: `forward` or `backward`.
        written: which tensors the operator writes to; it gets copies of them.
        aliases: which results share memory with an input; copies of them are returned.
        results: number of results.
    """

    op: Any
    case: Case
    mode: str
    written: frozenset[int] = frozenset()
    aliases: frozenset[int] = frozenset()
    results: int = 0

    def inputs(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors that the archive gets for these values of the case: for a backward, cotangents too."""
        if self.mode != BACKWARD:
            return list(values)
        return [*values, *_cotangents(self, values)]

    def results_of(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """What the operator returns, or its gradients: tensors and numbers, in order."""
        if self.mode == BACKWARD:
            results = _backward(self, tensors)
        else:
            results = _forward(self, [t.clone() if i in self.written else t for i, t in enumerate(tensors)])
        return [r.clone() if i in self.aliases else r for i, r in enumerate(results)]

    def in_precision(self) -> Call:
        """The same call but for dtypes and modules among its arguments: those are of float64 or complex128."""
        leaves = [_leaf_in_precision(leaf) for leaf in self.case.leaves]
        return dataclasses.replace(self, case=dataclasses.replace(self.case, leaves=leaves))


def observed(op: Any, case: Case, mode: str) -> Call:
    """The call, having seen what eager does with the case's first values.

    Raises:
        Exception: what eager raises.
    """
    call = Call(op, case, mode)
    try:
        _observe(call)
    except RuntimeError as error:
        if mode != BACKWARD or "leaf Variable" not in str(error):
            raise
        call.written = frozenset(range(len(case.tensors)))
        _observe(call)
    return call


def _observe(call: Call) -> None:
    tensors = copies(call.inputs(call.case.values[0]))
    before = [t._version for t in tensors]
    results = call.results_of(tensors)
    after = [t._version for t in tensors]
    memory = {_storage(t) for t in tensors} - {None}
    call.written |= frozenset(i for i, (b, a) in enumerate(zip(before, after, strict=True)) if a != b)
    call.aliases = frozenset(i for i, r in enumerate(results) if isinstance(r, torch.Tensor) and _storage(r) in memory)
    call.results = len(results)


class Joined(torch.nn.Module):
    """A module over all calls' tensors, one after the other, which returns all their results.

    Each call is a module inside of it, by whose name (`call12`) an error can say which one it is about.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self._counts = [len(call.inputs(call.case.values[0])) for call in calls]
        for i, call in enumerate(calls):
            self.add_module(f"call{i}", _Module(call))

    def forward(self, *tensors: torch.Tensor) -> tuple[Any, ...]:
        results: list[Any] = []
        start = 0
        for module, count in zip(self.children(), self._counts, strict=True):
            results += module(*tensors[start : start + count])
            start += count
        return tuple(results)


class _Module(torch.nn.Module):
    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        # The parameters of a module among the arguments are this one's, too.
        for i, leaf in enumerate(call.case.leaves):
            if isinstance(module := getattr(leaf, "module", None), torch.nn.Module):
                self.add_module(f"argument{i}", module)

    def forward(self, *tensors: torch.Tensor) -> tuple[Any, ...]:
        return tuple(self._call.results_of(tensors))


def copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of the same strides in other memory."""
    return [_copy(tensor) for tensor in tensors]


def in_precision(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in float64 or complex128 where they are floating or complex."""
    return [t.detach().to(_precise(t.dtype)).requires_grad_(t.requires_grad) for t in tensors]


def _leaf_in_precision(leaf: Any) -> Any:
    if isinstance(leaf, torch.dtype):
        return _precise(leaf)
    return leaf.in_precision() if hasattr(leaf, "in_precision") else leaf


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else dtype


def _forward(call: Call, tensors: Sequence[torch.Tensor]) -> list[Any]:
    input, args, kwargs = call.case.arguments(tensors)
    return _leaves(call.op(input, *args, **kwargs))


def _backward(call: Call, tensors: Sequence[torch.Tensor]) -> list[Any]:
    count = len(call.case.tensors)
    with torch.enable_grad():
        wanted, results = _differentiated(call, tensors[:count])
        gradients = torch.autograd.grad(results, wanted, list(tensors[count:]), allow_unused=True)
    # A gradient that is known to be zero may have no memory.
    return [g + 0 if g._is_zerotensor() else g for g in gradients if g is not None]


def _differentiated(call: Call, tensors: Sequence[torch.Tensor]) -> tuple[list[Any], list[Any]]:
    """The tensors that have gradients, as leaves of a graph, and the results that depend on them."""
    first = call.case.values[0]
    given = [t.detach().requires_grad_() if known.requires_grad else t for t, known in zip(tensors, first, strict=True)]
    wanted = [t for t in given if t.requires_grad]
    input, args, kwargs = call.case.arguments(given)
    if call.written:
        # A leaf cannot be written to.
        input, args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (input, args, kwargs))
    result = call.op(input, *args, **kwargs)
    if call.case.process is not None:
        result = call.case.process(result)
    results = [r for r in _leaves(result) if isinstance(r, torch.Tensor) and r.requires_grad]
    return wanted, results


def _cotangents(call: Call, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """One for each result that has gradients, of a fixed seed."""
    with torch.enable_grad():
        _, results = _differentiated(call, copies(values))
    generator = torch.Generator().manual_seed(len(results))
    return [torch.randn(r.shape, dtype=r.dtype, generator=generator) for r in results]


def _leaves(value: Any) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, _RESULTS)]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout != torch.strided:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    plain = tensor.detach()
    extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    if not tensor.numel():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).requires_grad_(
            tensor.requires_grad
        )
    memory = torch.as_strided(plain, (extent,), (1,), plain.storage_offset()).clone()
    return memory.as_strided(tensor.shape, tensor.stride()).requires_grad_(tensor.requires_grad)


def _storage(tensor: torch.Tensor) -> int | None:
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else None
