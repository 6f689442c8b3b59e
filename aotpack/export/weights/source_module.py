"""Freeing the module that a program was captured from, while its archive is packed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import torch

from aotpack.errors import SourceFreedError
from aotpack.export.ir.program import Program, get_attribute
from aotpack.export.torch_compat.tensors import storage_id


class SourceTensors:
    """Lets go of the source model's tensors one by one, as soon as nothing of the archive is made of them any more.

    The module refuses to run from the start: what is left of it is no model. A tensor that somebody else holds too, by
    an alias, stays in memory.
    """

    def __init__(self, programs: Sequence[Program], constants: Iterable[tuple[Program, str]]) -> None:
        """`constants` are those of `programs` that are going to be packed."""
        self._tensors: dict[int, list[torch.Tensor]] = {}
        self._pending: Counter[int] = Counter()
        for tensor in _holders(programs):
            self._tensors.setdefault(storage_id(tensor), []).append(tensor)
        for program, name in constants:
            self._pending.update(_storages(program, name))
        for module, name in {id(p.source_module): (p.source_module, p.name) for p in programs}.values():
            if module is not None:
                _refuse(module, name)
        for storage in set(self._tensors) - set(self._pending):
            self._free(storage)

    def packed(self, program: Program, constant: str) -> None:
        """A constant has been written: what only it was made of goes."""
        for storage in _storages(program, constant):
            self._pending[storage] -= 1
            if self._pending[storage] == 0:
                self._free(storage)

    def _free(self, storage: int) -> None:
        for tensor in self._tensors.pop(storage, ()):
            # Not resize_(0) on the storage: torch does not notice that, and a later use would be a crash.
            tensor.data = torch.empty(0, dtype=tensor.dtype)


def _storages(program: Program, constant: str) -> set[int]:
    # A freed tensor is never asked for again, so its storage is still the one that was counted.
    roots = [program.original(root) for root in program.roots(constant)]
    return {storage_id(root) for root in roots if not root.is_meta}


def _holders(programs: Sequence[Program]) -> list[torch.Tensor]:
    """Every tensor object by which a program or its module holds memory of the source model."""
    held: dict[int, torch.Tensor] = {}
    for program in programs:
        tensors = [get_attribute(program.graph_module, attribute) for attribute in program.constant_names()]
        tensors += [*program.originals.values(), *program.state_dict.values()]
        if program.source_module is not None:
            tensors += [*program.source_module.parameters(), *program.source_module.buffers()]
        held |= {id(tensor): tensor for tensor in tensors if not tensor.is_meta}
    return list(held.values())


def _refuse(module: torch.nn.Module, name: str) -> None:
    def forward(*_: Any, **__: Any) -> NoReturn:
        raise SourceFreedError(
            f"the parameters of {name!r} were freed when its archive was built",
            hint="run the archive, or build without `free_source`",
        )

    for part in module.modules():
        part.forward = forward
