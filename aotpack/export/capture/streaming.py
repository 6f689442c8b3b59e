"""Capturing models whose weights stay in `.safetensors` files until the archive is packed.

The model is made without memory for its parameters (`without_weights`), captured over stand-ins that are never touched,
and its tensors are read one at a time when the archive is packed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from aotpack.archive.safetensors import SafetensorsSet, open_safetensors
from aotpack.errors import AotpackError, CaptureError
from aotpack.export.ir.program import ConstantInfo, Program, get_attribute, set_attribute
from aotpack.export.ir.rewriter import as_node
from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.fake_tensors import FakeTensorMode
from aotpack.export.torch_compat.modules import tensor_tables
from aotpack.export.tracing.python_state.provenance import Provenance
from aotpack.export.tracing.state import state_put_back

WeightFiles = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_LISTED = 10


@contextlib.contextmanager
def without_weights() -> Iterator[None]:
    """While active, new modules have parameters on the meta device, without memory. Buffers are created as usual.

    >>> with without_weights():
    ...     model = LargeModel()
    >>> program = aot_export(model, args, weights="model.safetensors")
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


class StreamedWeights:
    """The state dict of a module, to be read from files. The files must stay as they are until the archive is built.

    Args:
        module: tensors on the meta device must all be in the files; others are overwritten by those that are.
        files: a `.safetensors` file, several, or the `….safetensors.index.json` of a set of them.

    Raises:
        CaptureError: the files and the module differ in names or shapes; all differences are listed.
        WeightsNotFoundError, WeightsFileError: a file cannot be read.
    """

    def __init__(self, module: torch.nn.Module, files: WeightFiles) -> None:
        self._module = module
        self._files: SafetensorsSet = open_safetensors(files)
        tensors = _named_tensors(module)
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
        return value.to(_named_tensors(self._module)[name].dtype)

    @contextlib.contextmanager
    def stand_ins(self) -> Iterator[None]:
        """The module with memory for its tensors, which must not be read: untouched memory takes no room."""
        made: dict[int, torch.Tensor] = {}
        places = [
            (table, name, tensor)
            for part in self._module.modules()
            for table in tensor_tables(part)
            for name, tensor in table.items()
            if tensor is not None and tensor.is_meta
        ]
        try:
            for table, name, tensor in places:
                if id(tensor) not in made:
                    room = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
                    is_parameter = isinstance(tensor, torch.nn.Parameter)
                    made[id(tensor)] = torch.nn.Parameter(room, tensor.requires_grad) if is_parameter else room
                table[name] = made[id(tensor)]
            yield
        finally:
            for table, name, tensor in places:
                table[name] = tensor

    def fake_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FakeCall:
        """The call of the module with fake tensors: nothing is computed."""
        return FakeCall(self._module, args, kwargs)

    def attach(self, program: Program) -> Program:
        """The captured program, its tensors no more the stand-ins but those of the files."""
        tensors = _named_tensors(self._module)
        constants = dict(program.constants)
        for node in list(program.graph.find_nodes(op="get_attr")):
            attribute = str(as_node(node).target)
            tensor = tensors.get(attribute)
            if tensor is None or not tensor.is_meta:
                continue
            role = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
            constants.setdefault(attribute, ConstantInfo(role, (attribute,)))
            if get_attribute(program.graph_module, attribute) is not tensor:
                set_attribute(program.graph_module, attribute, tensor)
        return replace(program, constants=constants, load=self.tensor, reference=None)

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


class FakeCall:
    """A call of a module over fake tensors, which can be made again and again.

    Attributes:
        arguments: the fake tensors and other leaves that the module is called with.
        provenance: where the tensors of all calls come from.
    """

    def __init__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._module = module
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.provenance = Provenance()
        self._call = pytree.tree_map_only(torch.Tensor, self._mode.from_tensor, (args, kwargs))
        self.arguments = pytree.tree_leaves(self._call)

    def __call__(self) -> Any:
        """What the module returns, as fake tensors. What it leaves in Python objects stays there."""
        args, kwargs = self._call
        with torch.no_grad(), self._mode, self.provenance:
            return self._module(*args, **kwargs)

    def answer(self) -> Any:
        """The same, and the module is as before afterwards.

        Raises:
            CaptureError: the call fails.
        """
        try:
            with state_put_back(self._module, self.provenance.writes()):
                return self()
        except AotpackError:
            raise
        except Exception as error:
            raise CaptureError(
                f"the example call fails on a model without weights: {type(error).__name__}: {error}",
                hint="a model whose control flow depends on values of weights cannot be streamed: load its weights",
            ) from error


def _named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers, those that are tied under each of their names."""
    named: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    return named | dict(module.named_buffers(remove_duplicate=False))
