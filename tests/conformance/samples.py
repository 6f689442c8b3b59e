"""The operator database: operators, and their samples as cases.

A case is a call of an operator but for the values of its tensors: their shapes, dtypes and strides and all other
arguments. Samples that are equal in these are values of one case. Each case has values of a second run of the sample
generator too, by another seed, so that nothing that depends on values can have become part of an archive.

Private interfaces touched (torch 2.11 to 2.13):
  torch.testing._internal.common_methods_invocations.op_db
  torch.testing._internal.common_methods_invocations.wrapper_set_seed   replaced: random operators are to be random
  torch.testing._internal.opinfo.core.{OpInfo, SampleInput}
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree

# Values of one case that are run: those of so many samples, and those of the second seed.
_MOST_VALUES = 4


@dataclass
class Case:
    """One call.

    Attributes:
        leaves: the arguments' leaves; None in place of tensors.
        tree: of (input, args, kwargs).
        tensors: which leaves are tensors.
        values: the tensors, once for every sample that is this case, and once or more of another seed.
        samples: how many samples are this case.
        process: what the database wants done to results before they are differentiated.
    """

    leaves: list[Any]
    tree: pytree.TreeSpec
    tensors: list[int]
    values: list[list[torch.Tensor]] = field(default_factory=list)
    samples: int = 0
    process: Callable[[Any], Any] | None = None

    def arguments(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """(input, args, kwargs) with these tensors."""
        leaves = list(self.leaves)
        for position, tensor in zip(self.tensors, tensors, strict=True):
            leaves[position] = tensor
        input, args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        return input, tuple(args), kwargs


@lru_cache(maxsize=1)
def operators() -> dict[str, Any]:
    """The database by name: `sum`, `std.unbiased`."""
    from torch.testing._internal import common_methods_invocations

    database: Any = common_methods_invocations
    database.wrapper_set_seed = lambda function, *args, **kwargs: function(*args, **kwargs)
    found: dict[str, Any] = {}
    for op in database.op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        found.setdefault(name, op)
    return found


def find(name: str) -> Any:
    """The operator of this name: of the operator database, or a module of the module database in a mode."""
    from tests.conformance.modules_database import modules

    return operators().get(name) or modules()[name]


def supported(op: Any, dtype: str, *, backward: bool = False) -> bool:
    """Whether the database has the operator for CPU tensors of this dtype."""
    wanted = getattr(torch, dtype)
    if backward:
        return bool(op.supports_autograd) and wanted in op.supported_backward_dtypes("cpu")
    return wanted in op.supported_dtypes("cpu")


def cases_of(op: Any, dtype: str, *, backward: bool = False, other_values: bool = True) -> list[Case]:
    """All cases of an operator, in the order of the samples. The same in every process.

    `other_values`: with values of another seed, which takes as long again.
    """
    cases: dict[Any, Case] = {}
    for sample in _samples(op, dtype, 0, backward):
        key, case, tensors = _case(op.name, sample)
        case = cases.setdefault(key, case)
        case.samples += 1
        if len(case.values) < _MOST_VALUES:
            case.values.append(tensors)
    if not other_values:
        return list(cases.values())
    for sample in _samples(op, dtype, 1, backward):
        key, _, tensors = _case(op.name, sample)
        known = cases.get(key)
        # One more than of the first seed alone, and none that is the same.
        if known is None or not tensors or len(known.values) > min(known.samples, _MOST_VALUES):
            continue
        if not any(_same(tensors, values) for values in known.values):
            known.values.append(tensors)
    for case in cases.values():
        if len(case.values) == 1 and case.tensors:
            case.values += [values for values in [_shuffled(case.values[0])] if not _same(values, case.values[0])]
    return list(cases.values())


def chosen(count: int, limit: int | None) -> tuple[int, ...]:
    """Which of so many cases are run: all, or `limit` of them at even distances."""
    if limit is None or count <= limit:
        return tuple(range(count))
    return tuple(sorted({(i * count) // limit for i in range(limit)}))


def _samples(op: Any, dtype: str, seed: int, backward: bool) -> list[Any]:
    number = zlib.crc32(f"{op.name}.{op.variant_test_name}.{dtype}".encode()) ^ seed
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)
    return list(op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=backward))


def _case(name: str, sample: Any) -> tuple[Any, Case, list[torch.Tensor]]:
    leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [_plain(leaves[i]) for i in positions]
    key = (tuple(_tensor_key(leaf) if isinstance(leaf, torch.Tensor) else _plain_key(leaf) for leaf in leaves), tree)
    rest = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    case = Case(rest, tree, positions, process=_PROCESSES.get(name, getattr(sample, "output_process_fn_grad", None)))
    return (key[0], str(tree)), case, tensors


def _ordered(result: Any) -> Any:
    """Eigenvalues, and the lengths of what their vectors are made of, in an order that the values alone settle."""
    values, *vectors = result if isinstance(result, tuple) else (result,)
    order = (values.real + 0.618 * values.imag).argsort(-1)
    lengths = [v.abs().gather(-1, order.unsqueeze(-2).expand_as(v)) for v in vectors]
    return values.gather(-1, order), *lengths


# What is differentiated instead of results that no two implementations need have in common.
_PROCESSES: dict[str, Callable[[Any], Any]] = {"linalg.eig": _ordered, "linalg.eigvals": _ordered}


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Cut from its history, its values in memory as they are read; whether it requires a gradient stays."""
    requires = tensor.requires_grad
    tensor = tensor.detach()
    if tensor.layout == torch.strided:
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.requires_grad_() if requires else tensor


def _tensor_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout == torch.strided else str(tensor.layout)
    return ("tensor", str(tensor.dtype), tuple(tensor.shape), strides, tensor.requires_grad)


def _plain_key(leaf: Any) -> tuple[str, str]:
    return (type(leaf).__name__, repr(leaf))


def _same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(
        a.layout != torch.strided or torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(one, other, strict=True)
    )


def _shuffled(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Other values where the sample generator always gives the same: floating elements change places and shrink.

    Tensors keep their strides; integers and bools, which mostly choose something, stay as they are.
    """
    return [
        _shuffle(t) if t.layout == torch.strided and (t.is_floating_point() or t.is_complex()) else t for t in tensors
    ]


def _shuffle(tensor: torch.Tensor) -> torch.Tensor:
    extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    if not tensor.numel():
        return tensor
    plain = tensor.detach()
    memory = torch.as_strided(plain, (extent,), (1,), plain.storage_offset()).clone()
    order = torch.randperm(extent, generator=torch.Generator().manual_seed(extent))
    memory = (memory[order] * 0.75).to(tensor.dtype)
    result = memory.as_strided(tensor.shape, tensor.stride())
    return result.requires_grad_() if tensor.requires_grad else result
