"""Tensors that a model has under several names, while a step of training is captured.

AOTAutograd does not trace a call that writes to a tensor which it has as two arguments. So each tensor is in the tables
of one module alone meanwhile; other modules get it as a plain attribute when the model is called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from aotpack.export.torch_compat.modules import child_table, copied_module, tensor_tables


@dataclass(frozen=True, eq=False)
class Tied:
    """An attribute of a module, and the name under which the model has the same tensor first."""

    module: nn.Module
    attribute: str
    first: str


@contextlib.contextmanager
def untied(model: nn.Module) -> Iterator[Sequence[Tied]]:
    """While active, each parameter and buffer of the model is in one table; modules that are in several places have a
    copy without tensors in each further one.
    """
    with contextlib.ExitStack() as stack:
        _copy_shared_modules(model, set(), stack)
        first: dict[int, str] = {}
        found: list[Tied] = []
        for path, module in model.named_modules():
            for table in tensor_tables(module):
                for name, tensor in list(table.items()):
                    whole = f"{path}.{name}" if path else name
                    if tensor is not None and first.setdefault(id(tensor), whole) != whole:
                        found.append(Tied(module, name, first[id(tensor)]))
                        _without(table, name, stack)
        yield found


@contextlib.contextmanager
def in_place(tensors: Mapping[Tied, Tensor]) -> Iterator[None]:
    """While active, modules have these tensors."""
    for each, tensor in tensors.items():
        each.module.__dict__[each.attribute] = tensor
    try:
        yield
    finally:
        for each in tensors:
            del each.module.__dict__[each.attribute]


def _copy_shared_modules(module: nn.Module, seen: set[int], stack: contextlib.ExitStack) -> None:
    seen.add(id(module))
    children = child_table(module)
    for name, child in list(children.items()):
        if child is None:
            continue
        if id(child) in seen:
            stack.callback(children.__setitem__, name, child)
            children[name] = _copy(child)
        else:
            _copy_shared_modules(child, seen, stack)


def _copy(module: nn.Module) -> nn.Module:
    """A module that computes the same from the same tensors, with tables of its own."""
    other = copied_module(module)
    children = child_table(other)
    for name, child in list(children.items()):
        if child is not None:
            children[name] = _copy(child)
    return other


def _without(table: dict[str, Any], name: str, stack: contextlib.ExitStack) -> None:
    before = dict(table)

    def put_back() -> None:
        table.clear()
        table.update(before)

    stack.callback(put_back)
    del table[name]
