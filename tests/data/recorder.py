"""Records calls of a model in eager PyTorch, to be repeated by an archive. Needs torch.

What is written is read by tests/support/frozen.py, which describes the steps.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# What numpy lacks is stored as its bits.
_BITS = {
    torch.bfloat16: torch.uint16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e5m2: torch.uint8,
}


class Recorder:
    """The steps so far, and a copy of the model that they ran on.

    Args:
        model: the model that the archive is built from.
        state: the names of the buffers that are the archive's state.
    """

    def __init__(self, model: nn.Module, state: Sequence[str] = ()) -> None:
        self.eager = copy.deepcopy(model)
        self._original = copy.deepcopy(model.state_dict())
        self._state = tuple(state)
        self._initial = {name: self._original[name] for name in state}
        self._steps: list[dict[str, Any]] = []
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._pack: dict[str, Any] | None = None

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """A call of the entry `method`, its result, what it leaves in arguments that it writes to, and the state."""
        step = {"call": method, "args": self._tree(list(args)), "kwargs": self._tree(kwargs)}
        places: dict[int, list[int]] = {}
        for position, value in enumerate(args):
            if isinstance(value, Tensor):
                places.setdefault(id(value), []).append(position)
        if same := [group for group in places.values() if len(group) > 1]:
            step["same"] = same
        before = copy.deepcopy(args)
        with torch.no_grad():
            result = getattr(self.eager, method)(*args, **kwargs)
        step["result"] = self._tree(result)
        if any(isinstance(a, Tensor) and not torch.equal(a, b) for a, b in zip(args, before, strict=True)):
            step["args_after"] = self._tree(list(args))
        if self._state:
            step["state"] = self._tree({name: self.eager.get_buffer(name) for name in self._state})
        self._steps.append(step)
        return result

    def refused(self, kind: str, method: str, *args: Any) -> None:
        """A call that fails, with an error of this kind: "input" or "execution"."""
        self._steps.append({"refused": kind, "call": method, "args": self._tree(list(args)), "kwargs": {"dict": []}})

    def packed(self, weights: Mapping[str, Tensor], *, before: bool) -> None:
        """The weights that are packed into a code-only archive: before it is frozen, or by those who run it."""
        self.eager.load_state_dict(weights)
        self._original = copy.deepcopy(self.eager.state_dict())
        self._initial = {name: self._original[name] for name in self._state}
        self._pack = None if before else self._tree(dict(weights))

    def update(self, weights: Mapping[str, Tensor], *, partial: bool = False) -> None:
        """New weights. The state stays until the next reset."""
        self._load(weights)
        self._steps.append({"update": self._tree(dict(weights)), "partial": partial})

    def reset_weights(self) -> None:
        """The archive's own weights again."""
        self._load(self._original)
        self._steps.append({"reset": "weights"})

    def reset_state(self) -> None:
        """The state that the weights say."""
        self.eager.load_state_dict(self._initial, strict=False)
        self._steps.append({"reset": "state"})

    def _load(self, weights: Mapping[str, Tensor]) -> None:
        self._initial |= {name: value for name, value in weights.items() if name in self._state}
        rest = {name: value for name, value in weights.items() if name not in self._state}
        unknown = self.eager.load_state_dict(rest, strict=False).unexpected_keys
        assert not unknown, unknown

    def write(self, path: Path, about: Mapping[str, Any]) -> None:
        """Writes NAME.json and NAME.npz beside the archive `path`."""
        lines = ",\n  ".join(json.dumps(step) for step in self._steps)
        pack = f' "pack": {json.dumps(self._pack)},\n' if self._pack is not None else ""
        text = f'{{"about": {json.dumps(dict(about))},\n{pack} "steps": [\n  {lines}\n ]}}\n'
        path.with_suffix(".json").write_text(text)
        np.savez_compressed(path.with_suffix(".npz"), **self._arrays)

    def _tree(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Tensor):
            name = f"a{len(self._arrays)}"
            # A copy: the caller's tensor may change.
            stored = value.detach().clone().contiguous()
            self._arrays[name] = stored.view(_BITS.get(stored.dtype, stored.dtype)).numpy()
            return {"array": name, "dtype": str(value.dtype).removeprefix("torch.")}
        if isinstance(value, Mapping):
            return {"dict": [[key, self._tree(item)] for key, item in value.items()]}
        if hasattr(value, "_fields"):
            return {"fields": [[key, self._tree(getattr(value, key))] for key in value._fields]}
        if isinstance(value, (list, tuple)):
            return {type(value).__name__: [self._tree(item) for item in value]}
        assert value is None or isinstance(value, (bool, int, float, str)), value
        return {"value": value}
