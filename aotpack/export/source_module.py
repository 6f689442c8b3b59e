"""Freeing the module that a program was captured from, while its archive is packed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn

import torch

from aotpack.errors import SourceFreedError
from aotpack.export.program import Program, get_attribute


class SourceTensors:
    """Lets go of the source model's tensors one by one, as soon as nothing of the archive is made of them any more.

    The module refuses to run from the start: what is left of it is no model. A tensor that somebody else holds too, by
    an alias, stays in memory.
    """

    def __init__(self, program: Program, constants: Iterable[str]) -> None:
        self._program = program
        self._tensors: dict[int, list[torch.Tensor]] = {}
        self._pending: Counter[int] = Counter()
        for tensor in _holders(program):
            self._tensors.setdefault(_storage(tensor), []).append(tensor)
        for name in constants:
            self._pending.update(self._storages(name))
        if program.source_module is not None:
            _refuse(program.source_module, program.name)
        for storage in set(self._tensors) - set(self._pending):
            self._free(storage)

    def packed(self, constant: str) -> None:
        """A constant has been written: what only it was made of goes."""
        for storage in self._storages(constant):
            self._pending[storage] -= 1
            if self._pending[storage] == 0:
                self._free(storage)

    def _storages(self, constant: str) -> set[int]:
        # A freed tensor is never asked for again, so its storage is still the one that was counted.
        roots = [self._program.original(root) for root in self._program.roots(constant)]
        return {_storage(root) for root in roots if not root.is_meta}

    def _free(self, storage: int) -> None:
        for tensor in self._tensors.pop(storage, ()):
            # Not resize_(0) on the storage: torch does not notice that, and a later use would be a crash.
            tensor.data = torch.empty(0, dtype=tensor.dtype)


def _storage(tensor: torch.Tensor) -> int:
    storage: int = tensor.untyped_storage()._cdata
    return storage


def _holders(program: Program) -> list[torch.Tensor]:
    """Every tensor object by which the program or its module holds memory of the source model."""
    attributes = [str(node.target) for node in program.graph.find_nodes(op="get_attr")]
    held = [get_attribute(program.graph_module, attribute) for attribute in attributes]
    held += [*program.originals.values(), *program.state_dict.values()]
    if program.source_module is not None:
        held += [*program.source_module.parameters(), *program.source_module.buffers()]
    return list({id(tensor): tensor for tensor in held if not tensor.is_meta}.values())


def _refuse(module: torch.nn.Module, name: str) -> None:
    def forward(*_: Any, **__: Any) -> NoReturn:
        raise SourceFreedError(
            f"the parameters of {name!r} were freed when its archive was built",
            hint="run the archive, or build without `free_source`",
        )

    for part in module.modules():
        part.forward = forward
