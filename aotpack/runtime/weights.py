"""The arguments of `Model.update_weights` and `Context.load_state`: mappings of arrays, files of weights."""

from __future__ import annotations

import os
from typing import Any

from aotpack.archive.manifest import Manifest
from aotpack.archive.safetensors import open_safetensors
from aotpack.errors import WeightsError
from aotpack.runtime import lora
from aotpack.runtime._native import Runner
from aotpack.runtime.named_tensors import by_name, raw_tensors
from aotpack.runtime.structure import manifest_of
from aotpack.spec import TensorSpec, contiguous_order

_PARTIAL = 1  # AOTPACK_UPDATE_PARTIAL (aotpack.h)


def specs(manifest: Manifest) -> dict[str, TensorSpec]:
    """The tensors of an update, by name; empty for a frozen archive."""
    tensors = manifest.weights.tensors if manifest.weights else ()
    return {
        tensor.name: TensorSpec(tensor.name, tensor.dtype, tensor.shape, contiguous_order(len(tensor.shape)))
        for tensor in tensors
    }


def update(model: Runner, weights: Any, *, partial: bool, base: str, keep_originals: bool, num_threads: int) -> None:
    """See `Model.update_weights`."""
    flags = _flags(partial, base, keep_originals)
    _check_threads(num_threads)
    if isinstance(weights, Runner) and hasattr(weights, "load_state"):
        weights, flags = _trained(model, weights), flags | _PARTIAL
    if hasattr(weights, "keys"):
        names, arrays = by_name(weights)
        model._update_weights(names, arrays, [], False, flags, num_threads)
    elif isinstance(weights, (str, os.PathLike)) or _are_paths(weights):
        with open_safetensors(weights) as files:
            names, raw = raw_tensors(files)
            model._update_weights(names, raw, [], True, flags, num_threads)
    else:
        raise WeightsError(
            f"weights must be a mapping from names to arrays, files, or a context; got a {type(weights).__name__}",
            hint="pass a state dict, the path of a .safetensors file or of an index, a list of paths, or a Context",
        )


def _trained(model: Runner, context: Runner) -> dict[str, Any]:
    """The tensors of a context's state that have the name of a weight of the model."""
    state = context._get_state()
    wanted = specs(manifest_of(model._manifest))
    found = {name: value for name, value in state.items() if name in wanted}
    if wanted and not found:
        raise WeightsError(
            "no tensor of the context's state has the name of a weight of this archive",
            hint="Context.state() and Model.weights list the names",
        )
    return found


def add_lora(
    model: Runner, adapter: Any, *, scale: float | None, fan_in_fan_out: bool | None, base: str, num_threads: int
) -> None:
    """See `Model.add_lora`."""
    flags = _flags(True, base, True)
    _check_threads(num_threads)
    if hasattr(adapter, "keys"):
        found = lora.from_mapping(adapter, scale, fan_in_fan_out)
        model._update_weights(found.names, found.tensors, found.deltas, found.raw, flags, num_threads)
    elif isinstance(adapter, (str, os.PathLike)):
        found, files = lora.from_path(adapter, scale, fan_in_fan_out)
        with files:
            model._update_weights(found.names, found.tensors, found.deltas, found.raw, flags, num_threads)
    else:
        raise WeightsError(
            f"an adapter must be a mapping from names to arrays, a directory or a file; got a {type(adapter).__name__}"
        )


def _flags(partial: bool, base: str, keep_originals: bool) -> int:
    """AOTPACK_UPDATE_PARTIAL and so on (aotpack.h)."""
    if base not in ("current", "archive"):
        raise ValueError(f'base must be "current" or "archive", got {base!r}')
    return (_PARTIAL if partial else 0) | (2 if base == "archive" else 0) | (0 if keep_originals else 4)


def _check_threads(num_threads: int) -> None:
    if num_threads < 1:
        raise ValueError(f"num_threads must be at least 1, got {num_threads}")


def _are_paths(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, (str, os.PathLike)) for item in value)
