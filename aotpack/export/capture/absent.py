"""Capturing models whose weights are not in memory: tensors on the meta device.

The model is captured over stand-ins, memory that is never touched, and called with fake tensors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from aotpack.errors import AotpackError, CaptureError
from aotpack.export.ir.program import ConstantInfo, Program, get_attribute, set_attribute
from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.fake_tensors import FakeTensorMode
from aotpack.export.torch_compat.higher_order import functions_called
from aotpack.export.torch_compat.modules import tensor_tables
from aotpack.export.torch_compat.tensors import storage_id
from aotpack.export.tracing.python_state.provenance import Provenance
from aotpack.export.tracing.state import state_put_back

_LISTED = 10


class AbsentWeights:
    """The parameters and buffers of a module that are on the meta device.

    Args:
        module: the module.
        load: reads a tensor of the state dict when the archive is packed; None: nothing has the values.
    """

    def __init__(self, module: torch.nn.Module, load: Callable[[str], torch.Tensor] | None = None) -> None:
        self._module = module
        self._load = load
        self._memory: dict[int, torch.Tensor] = {}

    @contextlib.contextmanager
    def stand_ins(self) -> Iterator[None]:
        """The module with memory for its tensors, which must not be read: untouched memory takes no room. Tensors that
        share memory still do.
        """
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
                    made[id(tensor)] = self._stand_in(tensor)
                table[name] = made[id(tensor)]
            yield
        finally:
            for table, name, tensor in places:
                table[name] = tensor

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        key = storage_id(tensor)
        if key not in self._memory:
            self._memory[key] = torch.empty(tensor.untyped_storage().nbytes(), dtype=torch.uint8)
        memory = self._memory[key].untyped_storage()
        layout = (tensor.storage_offset(), tensor.shape, tensor.stride())
        room = torch.empty(0, dtype=tensor.dtype).set_(memory, *layout)
        return torch.nn.Parameter(room, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else room

    def fake_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FakeCall:
        """The call of the module with fake tensors: nothing is computed."""
        return FakeCall(self._module, args, kwargs)

    def attach(self, program: Program) -> Program:
        """The captured program, its tensors no more the stand-ins but those of the module.

        Raises:
            CaptureError: the program reads the memory of a stand-in as a tensor that the module does not have.
        """
        tensors = named_tensors(self._module)
        constants = dict(program.constants)
        for attribute in program.constant_names():
            tensor = tensors.get(attribute)
            if tensor is None or not tensor.is_meta:
                continue
            role = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
            constants.setdefault(attribute, ConstantInfo(role, (attribute,)))
            if get_attribute(program.graph_module, attribute) is not tensor:
                set_attribute(program.graph_module, attribute, tensor)
        program = replace(program, constants=constants, load=self._load, reference=None)
        # Its bytes are those of nothing.
        memory = {storage_id(room) for room in self._memory.values()}
        for attribute in program.constant_names():
            original = program.original(attribute)
            if original.numel() and storage_id(original) in memory:
                raise CaptureError(
                    f"the model reads the memory of a weight that is not loaded as the constant {attribute!r}",
                    hint="load the weights into the model before it is captured",
                )
        return program


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

    @functions_called()
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
                hint=_hint(self._module),
            ) from error


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers, those that are tied under each of their names."""
    named: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    return named | dict(module.named_buffers(remove_duplicate=False))


def _hint(module: torch.nn.Module) -> str:
    attributes = [
        f"{path}.{name}" if path else name
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, torch.Tensor) and value.is_meta
    ]
    if attributes:
        listed = ", ".join(map(repr, attributes[:_LISTED])) + (", …" if len(attributes) > _LISTED else "")
        return (
            f"these attributes are on the meta device, but no file of weights contains them: {listed}; compute them in "
            "forward(), or register them as buffers"
        )
    return "a model whose control flow depends on values of weights cannot be captured without them: load its weights"
