"""Capturing models whose weights stay in `.safetensors` files until the archive is packed.

The model is made without memory for its parameters (`without_weights`), captured as absent.py does it, and its tensors
are read one at a time when the archive is packed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from aotpack.archive.safetensors import SafetensorsSet, open_safetensors
from aotpack.errors import CaptureError
from aotpack.export.capture.absent import AbsentWeights, named_tensors

WeightFiles = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_LISTED = 10


@contextlib.contextmanager
def without_weights() -> Iterator[None]:
    """While active, new modules have parameters on the meta device, without memory. Buffers are created as usual.

    >>> with without_weights():
    ...     model = LargeModel()
    >>> program = aot_export(model, args, weights="model.safetensors")

    A code-only archive (`BuildOptions(code_only=True)`) is built without `weights`.
    """

    def on_meta(module: torch.nn.Module, name: str, param: torch.nn.Parameter | None) -> Any:
        if param is None or param.is_meta:
            return None
        return torch.nn.Parameter(torch.empty_like(param, device="meta"), requires_grad=param.requires_grad)

    hook = register_module_parameter_registration_hook(on_meta)
    try:
        yield
    finally:
        hook.remove()


class StreamedWeights(AbsentWeights):
    """The state dict of a module, to be read from files. The files must stay as they are until the archive is built.

    Args:
        module: tensors on the meta device must all be in the files; others are overwritten by those that are.
        files: a `.safetensors` file, several, or the `….safetensors.index.json` of a set of them.

    Raises:
        CaptureError: the files and the module differ in names or shapes; all differences are listed.
        WeightsNotFoundError, WeightsFileError: a file cannot be read.
    """

    def __init__(self, module: torch.nn.Module, files: WeightFiles) -> None:
        super().__init__(module, self.tensor)
        self._files: SafetensorsSet = open_safetensors(files)
        tensors = named_tensors(module)
        # Files often hold tied weights under one of their names.
        names: dict[int, str] = {}
        for name, tensor in tensors.items():
            if name in self._files.names:
                names.setdefault(id(tensor), name)
        self._names = {name: names[id(tensor)] for name, tensor in tensors.items() if id(tensor) in names}
        self._check(module, tensors)
        with torch.no_grad():
            for name, tensor in tensors.items():
                if not tensor.is_meta and name in self._names:
                    tensor.copy_(self.tensor(name))

    def tensor(self, name: str) -> torch.Tensor:
        """Reads a tensor of the state dict, in the dtype that the module has it in."""
        stored = self._names[name]
        dtype, shape = self._files.spec(stored)
        value = torch.empty(shape, dtype=getattr(torch, str(dtype)))
        if value.numel():
            data: Any = value.reshape(-1).view(torch.uint8).numpy()
            self._files.read_into(stored, data)
        return value.to(named_tensors(self._module)[name].dtype)

    def _check(self, module: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> None:
        problems = [f"no tensor {name!r}" for name, t in tensors.items() if t.is_meta and name not in self._names]
        known = set(self._names.values())
        problems += [f"the model has no {name!r}" for name in self._files.names if name not in known]
        for name, stored in self._names.items():
            _, shape = self._files.spec(stored)
            wanted = tuple(tensors[name].shape)
            if shape != wanted:
                problems.append(f"{stored!r} is {list(shape)}, the model has {list(wanted)}")
        if problems:
            more = f"\n  … and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
            listed = "".join(f"\n  - {problem}" for problem in problems[:_LISTED])
            raise CaptureError(
                f"the weights do not match {type(module).__name__}:{listed}{more}",
                hint="save them with safetensors.torch.save_model(model, path); buffers that are in no file must be "
                "created with the model (aotpack.export.without_weights leaves buffers in memory)",
            )
