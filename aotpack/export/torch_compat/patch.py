"""One patch of torch: an attribute or an entry of a dict that is replaced for a while, and put back exactly."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

MISSING: Final[Any] = object()


@dataclass(frozen=True)
class Patch:
    """One attribute of a module or class, or one entry of a dict, that is replaced.

    Attributes:
        place: "module:attribute", "module:Class.attribute", or "module:dict[key]", where the key is an operator
            ("torch.ops.aten.slice.Tensor") or else a string.
        why: what is wrong without the patch, and which public interface is missing.
        parameters: the names of its parameters in the last of `versions`, which the replacement relies on; None for
            what has no signature.
        versions: the first and the last version of torch that the patch was checked with.
        added: torch need not have such an attribute or entry; then it is removed again.
    """

    place: str
    why: str
    parameters: str | None = None
    versions: tuple[str, str] = ("2.11", "2.13")
    added: bool = False

    def owner(self) -> Any:
        """The module or class whose attribute is replaced, or the dict whose entry is.

        Raises:
            ImportError, AttributeError: torch does not have it.
        """
        module, _, path = self.place.partition(":")
        path, bracket, _ = path.partition("[")
        parts = path.split(".") if bracket else path.split(".")[:-1]
        return functools.reduce(getattr, parts, importlib.import_module(module))

    @property
    def name(self) -> Any:
        """The attribute of `owner`, or its key.

        Raises:
            AttributeError: the key is an operator that torch does not have.
        """
        _, bracket, key = self.place.partition("[")
        if not bracket:
            return self.place.replace(":", ".").rpartition(".")[2]
        key = key.removesuffix("]")
        first, *others = key.split(".")
        return functools.reduce(getattr, others, torch) if first == "torch" else key

    def exists(self) -> bool:
        """Whether torch has something in this place, inherited attributes among them."""
        owner = self.owner()
        return self.name in owner if isinstance(owner, Mapping) else hasattr(owner, self.name)

    def original(self) -> Any:
        """What torch has in this place, inherited attributes among them; None where it is added.

        Raises:
            AttributeError, KeyError: torch has nothing there.
        """
        owner = self.owner()
        if self.added and not self.exists():
            return None
        return owner[self.name] if isinstance(owner, Mapping) else getattr(owner, self.name)

    def held(self) -> Any:
        """What the owner itself has in this place; `MISSING` where it has nothing."""
        owner = self.owner()
        return (owner if isinstance(owner, Mapping) else vars(owner)).get(self.name, MISSING)

    def put(self, value: Any) -> None:
        """Has the owner hold this; nothing, where it is `MISSING`."""
        owner, name = self.owner(), self.name
        if isinstance(owner, dict):
            if value is MISSING:
                del owner[name]
            else:
                owner[name] = value
        elif value is MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
