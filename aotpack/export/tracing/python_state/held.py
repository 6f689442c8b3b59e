"""State in Python objects, held in buffers of the model while it is captured.

Before each call, what a buffer holds is put where the model looks for it; after it, what is there then is written to
the buffer. So torch.export sees a buffer that a call reads and writes.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from aotpack.errors import CaptureError
from aotpack.export.ir import pytree_spec
from aotpack.export.ir.program import Program
from aotpack.export.ir.regions import hold
from aotpack.export.torch_compat import pytree
from aotpack.export.tracing.python_state.nodes import ABSENT
from aotpack.export.tracing.python_state.snapshot import Place

_PREFIX = "aotpack_state_"
_MARK = "_aotpack_holds_state"


@dataclass(frozen=True)
class Piece:
    """What one place holds: a tensor, a number, or a tuple, list or dict of these.

    Attributes:
        places: where the model has it; several for one tensor that is written in place.
        tree: the structure of the value.
        initial: the leaves as tensors, before the first call.
        numbers: which leaves are ints or floats for the model.
        in_place: whether calls write to the tensors themselves.
    """

    places: tuple[Place, ...]
    tree: pytree.TreeSpec
    initial: tuple[torch.Tensor, ...]
    numbers: tuple[bool, ...]
    in_place: bool = False

    def names(self) -> list[str]:
        """A name for each leaf."""
        paths = [path for path, _ in pytree.tree_flatten_with_path(pytree.tree_unflatten(self.initial, self.tree))[0]]
        return [".".join([self.places[0].name, *map(pytree_spec.key_text, path)]) for path in paths]


def holds_state(module: torch.nn.Module) -> bool:
    """Whether state of Python objects is held in buffers of this module now."""
    return _MARK in module.__dict__


class Held:
    """All state of a model that is held in buffers."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = tuple(pieces)

    @contextlib.contextmanager
    def installed(self, module: torch.nn.Module) -> Iterator[None]:
        """While active, the module has the buffers, and its forward reads and writes them."""
        leaves = [leaf for piece in self.pieces for leaf in piece.initial]
        buffers = {f"{_PREFIX}{i}": leaf for i, leaf in enumerate(leaves)}
        own = module.__dict__.get("forward", ABSENT)
        original: Any = module.forward

        # Not hooks: this must be next to the call, behind all that prepares it.
        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            self._before(module)
            result = original(*args, **kwargs)
            self._behind(module)
            return result

        for name, buffer in buffers.items():
            module.register_buffer(name, buffer, persistent=False)
        module.__dict__["forward"] = forward
        module.__dict__[_MARK] = True
        try:
            yield
        except CaptureError as error:
            raise self._explained(error) from error
        finally:
            del module.__dict__["forward"], module.__dict__[_MARK]
            if own is not ABSENT:
                module.__dict__["forward"] = own
            for name in buffers:
                delattr(module, name)

    def _explained(self, error: CaptureError) -> CaptureError:
        numbers = [piece.places[0].label for piece in self.pieces if any(piece.numbers)]
        if not numbers or "data-dependent" not in str(error):
            return error
        return CaptureError(
            f"{' and '.join(numbers)} changes from call to call, and Python code of the model depends on it: {error}",
            hint="Python control flow cannot depend on state: keep it in a tensor and select by "
            "torch.where, or pass it as an argument",
        )

    def named(self, program: Program) -> Program:
        """The program, the state in it under the names of attributes."""
        graph_module, constants = program.graph_module, dict(program.constants)
        targets = {str(node.target) for node in graph_module.graph.find_nodes(op="get_attr")}
        names = [name for piece in self.pieces for name in piece.names()]
        for i, name in enumerate(names):
            old = f"{_PREFIX}{i}"
            if old not in targets:
                continue
            new = _free(graph_module, targets, name)
            targets.add(new)
            _move(graph_module, old, new)
            info = constants.pop(old, None)
            if info is not None:
                constants[new] = replace(info, sources=(new,))
        graph_module.recompile()
        return replace(program, constants=constants)

    def _before(self, module: torch.nn.Module) -> None:
        for piece, buffers in self._with_buffers(module):
            # Copies: what a call returns of the old value stays when the buffer is written to.
            leaves = [
                buffer.item() if is_number else buffer if piece.in_place else buffer.clone()
                for buffer, is_number in zip(buffers, piece.numbers, strict=True)
            ]
            value = pytree.tree_unflatten(leaves, piece.tree)
            for place in piece.places:
                place.put(value)

    def _behind(self, module: torch.nn.Module) -> None:
        for piece, buffers in self._with_buffers(module):
            place = piece.places[0]
            leaves, tree = pytree.tree_flatten(place.value())
            if tree != piece.tree:
                raise CaptureError(f"{place.label} has another structure after this call than before")
            with torch.no_grad():
                for buffer, value, is_number in zip(buffers, leaves, piece.numbers, strict=True):
                    if is_number:
                        _fill(buffer, value, place)
                    elif value is not buffer:
                        _copy(buffer, value, place)

    def _with_buffers(self, module: torch.nn.Module) -> Iterator[tuple[Piece, list[torch.Tensor]]]:
        start = 0
        for piece in self.pieces:
            names = [f"{_PREFIX}{i}" for i in range(start, start + len(piece.initial))]
            start += len(names)
            buffers: list[Any] = [module.get_buffer(name) for name in names]
            yield piece, buffers


def _fill(buffer: Any, value: Any, place: Place) -> None:
    if isinstance(value, torch.Tensor) and value.dim() == 0 and value.dtype == buffer.dtype:
        buffer.copy_(value)
    elif isinstance(value, (int, float, torch.SymInt, torch.SymFloat)) and not isinstance(value, bool):
        buffer.fill_(value)
    else:
        raise CaptureError(f"{place.label} is a number before this call and a {type(value).__name__} after it")


def _copy(buffer: torch.Tensor, value: Any, place: Place) -> None:
    if not isinstance(value, torch.Tensor):
        raise CaptureError(f"{place.label} is a tensor before this call and a {type(value).__name__} after it")
    sizes = [size.node.maybe_as_int() if isinstance(size, torch.SymInt) else int(size) for size in value.shape]
    if sizes != list(buffer.shape) or value.dtype != buffer.dtype:
        raise CaptureError(
            f"{place.label} is {_described(buffer)} before this call and {_described(value)} after it",
            hint="the shape and dtype of state are the same in all calls: remove these dims from dynamic_shapes, or "
            "write to a part of a larger buffer",
        )
    buffer.copy_(value.detach())


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(map(str, tensor.shape))}]"


_INITIAL: weakref.WeakKeyDictionary[Any, dict[str, tuple[Any, torch.Tensor]]] = weakref.WeakKeyDictionary()


def initial_tensor(model: Any, name: str, value: Any, made: torch.Tensor) -> torch.Tensor:
    """The tensor with the initial value of a place: one and the same for all entries captured of a model.

    Args:
        model: what is captured.
        name: of the state.
        value: what is there.
        made: a tensor of this value.
    """
    known = _INITIAL.setdefault(model, {})
    old = known.get(name)
    if old is not None and old[0] is value and old[1].shape == made.shape and old[1].dtype == made.dtype:
        return old[1]
    known[name] = (value, made)
    return made


def _free(graph_module: torch.fx.GraphModule, taken: set[str], name: str) -> str:
    """A path at which the graph module has nothing, made of identifiers."""
    parts = ["".join(c if c.isalnum() or c == "_" else "_" for c in part) or "_" for part in name.split(".")]
    wanted = ("." if _has_room(graph_module, parts[:-1]) else "_").join(parts)
    number, free = 1, wanted
    while free in taken or not _is_free(graph_module, free.split(".")):
        number += 1
        free = f"{wanted}_{number}"
    return free


def _has_room(module: Any, path: Sequence[str]) -> bool:
    """Whether all that there is on a path are modules."""
    for part in path:
        if not hasattr(module, part):
            return True
        module = getattr(module, part)
        if not isinstance(module, torch.nn.Module):
            return False
    return True


def _is_free(module: Any, path: Sequence[str]) -> bool:
    for part in path[:-1]:
        if not hasattr(module, part):
            return True
        module = getattr(module, part)
    return not hasattr(module, path[-1])


def _move(graph_module: torch.fx.GraphModule, old: str, new: str) -> None:
    tensor = getattr(graph_module, old)
    delattr(graph_module, old)
    hold(graph_module, new, tensor)
    for node in graph_module.graph.find_nodes(op="get_attr"):
        if node.target == old:
            node.target = new
