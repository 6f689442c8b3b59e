"""Which weights a build needs the values of, and whether they are there."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotpack.errors import BuildError
from aotpack.export.ir.program import Program, identity

_LISTED = 10


def refuse_missing_values(programs: Sequence[Program], *, code_only: bool) -> None:
    """Refuses programs that read tensors without values. In a code-only build, those of the state dict need none.

    Raises:
        BuildError: tensors have no values, or a code-only archive would contain weights. All of them are listed.
    """
    state = {identity(t): name for p in programs for name, t in p.state_dict.items() if not _is_wrapper(t)}
    if code_only:
        _refuse_wrappers(programs)
    missing: dict[str, None] = {}
    for program in programs:
        for attribute in program.constant_names():
            tensor = program.original(attribute)
            if tensor.is_meta and program.load is None and not (code_only and identity(tensor) in state):
                missing.setdefault(attribute)
    if not missing:
        return
    listed = _listed(list(missing))
    if code_only:
        raise BuildError(
            f"the model reads tensors on the meta device that are not in its state dict, so that no file of weights "
            f"contains their values: {listed}",
            hint="create the model under aotpack.export.without_weights(), which leaves buffers in memory, or give "
            "these tensors values before the capture",
        )
    raise BuildError(
        f"the model has no values for {listed}: they are on the meta device",
        hint="load the weights into the model (model.to_empty(device='cpu'), then load_state_dict), name their file "
        '(aot_export(…, weights="model.safetensors"), `aotpack build --weights model.safetensors`), or build the code '
        "alone (BuildOptions(code_only=True), `aotpack build --code-only`) and add the weights with `aotpack pack`",
    )


def _refuse_wrappers(programs: Sequence[Program]) -> None:
    wrappers = dict.fromkeys(n for p in programs for n, t in p.state_dict.items() if _is_wrapper(t))
    if wrappers:
        raise BuildError(
            f"weights that are tensor subclasses cannot be left out of an archive: {_listed(list(wrappers))}",
            hint="build with the weights, or convert them to plain tensors",
        )


def _is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether a tensor consists of others, which the state dict does not name."""
    return hasattr(type(tensor), "__tensor_flatten__")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_LISTED])) + (f" and {len(names) - _LISTED} more" * (len(names) > _LISTED))
