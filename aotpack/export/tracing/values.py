"""Arguments and results beside tensors and plain values: dtypes, devices, layouts, memory formats, members of enums.

torch.export takes none of them, and archives know plain values alone. Each becomes a constant of the signature, its
name (`torch.float64`, `Color.RED`), and the model gets the object itself. A call may pass the object or its name. As
results they are constants too: names, and for members of enums their values.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import Any

import torch

from aotpack.errors import CaptureError
from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.modules import tensor_tables
from aotpack.export.tracing.numbers import with_arguments
from aotpack.spec import name_of_value

NAMED = (enum.Enum, torch.dtype, torch.device, torch.layout, torch.memory_format)


def taking_names(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any], Callable[[Any], Any]]:
    """A module and a call that pass such arguments by name, and what makes the objects of the names in a call again."""
    leaves, _ = pytree.tree_flatten_with_path((args, kwargs))
    objects = {pytree.keystr(path): value for path, value in leaves if isinstance(value, NAMED)}
    if not objects:
        return module, args, kwargs, lambda call: call

    def named(value: Any) -> Any:
        return name_of_value(value) if isinstance(value, NAMED) else value

    def original(path: Any, value: Any) -> Any:
        return objects.get(pytree.keystr(path), value)

    def restored(call: Any) -> Any:
        return pytree.tree_map_with_path(original, call)

    new_args, new_kwargs = pytree.tree_map(named, (args, kwargs))
    return with_arguments(module, original), new_args, new_kwargs, restored


def plain_result(value: Any) -> Any:
    """What archives return for such an object: the value of a member of an enum, where that is a number, str or None,
    and the name of the others. All else is returned as it is.
    """
    if isinstance(value, enum.Enum):
        return value.value if value.value is None or isinstance(value.value, (int, float, str)) else value
    return name_of_value(value) if isinstance(value, NAMED) else value


def refuse_named_results(outputs: Any) -> None:
    """Raises CaptureError if a model returns a member of an enum that has no plain value."""
    for path, value in pytree.tree_flatten_with_path(outputs)[0]:
        if isinstance(value, enum.Enum) and plain_result(value) is value:
            raise CaptureError(
                f"output{pytree.keystr(path)} is {name_of_value(value)}, a member of an enum whose value is a "
                f"{type(value.value).__name__}, which an archive cannot return",
                hint="return tensors, scalars, str and None in tuples, lists, dicts and dataclasses",
            )


@contextlib.contextmanager
def normal_tensors(module: torch.nn.Module) -> Iterator[None]:
    """While active, parameters and buffers that were made in inference mode are normal tensors with the same values:
    torch can trace no others.
    """
    places = [
        (table, name, tensor)
        for part in module.modules()
        for table in tensor_tables(part)
        for name, tensor in table.items()
        if tensor is not None and tensor.is_inference()
    ]
    made: dict[int, torch.Tensor] = {}
    for table, name, tensor in places:
        if id(tensor) not in made:
            copy = tensor.detach().clone()
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            made[id(tensor)] = torch.nn.Parameter(copy, tensor.requires_grad) if is_parameter else copy
        table[name] = made[id(tensor)]
    try:
        yield
    finally:
        for table, name, tensor in places:
            if table.get(name) is made[id(tensor)]:
                table[name] = tensor
