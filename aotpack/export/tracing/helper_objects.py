"""Tensors that a model holds twice: as a parameter or buffer, and as an attribute of an object that helps it.

A cache whose tensors are registered as buffers is such an object. While a model is traced, torch.export puts fake
tensors in the places of parameters and buffers, but not into other objects: what the model does to the tensors there is
done to real ones, and their values are taken for constants. So these places hold the same fake tensors meanwhile.
"""

from __future__ import annotations

import contextlib
import operator
import types
from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from aotpack.export.ir.program import identity
from aotpack.export.ir.storage import storage_key
from aotpack.export.torch_compat.tensors import version_of

# Objects of helpers, below which there may be tensors; deeper ones are not looked for.
_DEPTH = 8

_OPAQUE = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    torch.nn.Module,
    torch.dtype,
    torch.device,
    str,
    bytes,
    int,
    float,
    complex,
)


@dataclass(frozen=True)
class Place:
    """Where an object holds a tensor, and how to put another one there."""

    tensor: torch.Tensor
    put: Callable[[Any], None]


@dataclass
class Helpers:
    """What a module leads to but for other modules, parameters and buffers.

    Attributes:
        places: of tensors.
        objects: with attributes.
    """

    places: list[Place] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    def add_attributes(self, owner: Any, names: Iterable[str], depth: int) -> None:
        for name in names:
            self._add(vars(owner)[name], partial(operator.setitem, vars(owner), name), depth)

    def _add(self, value: Any, put: Callable[[Any], None], depth: int) -> None:
        if isinstance(value, torch.Tensor):
            self.places.append(Place(value, put))
            return
        if value is None or depth == 0 or isinstance(value, _OPAQUE) or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, MutableMapping):
            for key, item in list(value.items()):
                self._add(item, partial(operator.setitem, value, key), depth - 1)
        elif isinstance(value, MutableSequence):
            for index, item in enumerate(list(value)):
                self._add(item, partial(operator.setitem, value, index), depth - 1)
        elif isinstance(value, (tuple, frozenset, set)):
            for item in value:
                # A tensor right inside cannot be replaced; one in an object below can.
                if not isinstance(item, torch.Tensor):
                    self._add(item, put, depth - 1)
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self.objects.append(value)
            self.add_attributes(value, list(attributes), depth - 1)


def helpers_of(module: torch.nn.Module) -> Helpers:
    """What is in attributes of the module, of its submodules and of objects below, and is not registered."""
    found = Helpers()
    for part in module.modules():
        own = ("_parameters", "_buffers", "_modules")
        found.add_attributes(part, [name for name in vars(part) if name not in own], _DEPTH)
    return found


@contextlib.contextmanager
def helpers_follow(module: torch.nn.Module) -> Iterator[None]:
    """While active, a call of the module begins with the parameters and buffers that it has at that time in all places
    that hold the same tensors; afterwards these hold what they did, with the values that they had.
    """
    registered: dict[object, str] = {}
    originals: dict[str, torch.Tensor] = {}
    for name, tensor in _registered(module).items():
        if tensor.layout == torch.strided and storage_key(tensor) is not None:
            registered.setdefault(identity(tensor), name)
            originals[name] = tensor
    places = [place for place in helpers_of(module).places if place.tensor.layout == torch.strided]
    followed = [(place, registered[identity(place.tensor)]) for place in places if identity(place.tensor) in registered]
    # Another view of such memory stays a real tensor, to which a trace may really write.
    memory = {storage_key(tensor) for tensor in originals.values()}
    views = [
        (place.tensor, place.tensor.detach().clone(), version_of(place.tensor))
        for place in places
        if storage_key(place.tensor) in memory and identity(place.tensor) not in registered
    ]

    def follow(called: torch.nn.Module, args: Any) -> None:
        now = _registered(called)
        for place, name in followed:
            tensor = now.get(name)
            if tensor is not None and tensor is not originals[name]:
                # Another tensor over a parameter's memory, as `.data` is, has no gradient.
                cut = tensor.requires_grad and not place.tensor.requires_grad
                place.put(tensor.detach() if cut else tensor)

    hook = module.register_forward_pre_hook(follow) if followed else None
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()
        for place, _ in followed:
            place.put(place.tensor)
        with torch.no_grad():
            for tensor, before, version in views:
                if version_of(tensor) != version:
                    tensor.copy_(before)


def _registered(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    named: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    return named | dict(module.named_buffers(remove_duplicate=False))
