"""Finds the line of the model that changes a place."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from aotpack.export.diagnostics import model_lines
from aotpack.export.torch_compat.tensors import version_of
from aotpack.export.tracing.python_state.snapshot import CONTENTS, Place


def changing(places: Sequence[Place], run: Callable[[], object]) -> list[str]:
    """The lines of the model that change places while `run` runs, as ends of messages; "" where none is known."""
    found: dict[int, str] = {}
    known = [_state(place) for place in places]
    last: list[model_lines.ModelLine | None] = [None]

    def look() -> None:
        for i, place in enumerate(places):
            if i not in found and _differs(known[i], _state(place)):
                found[i] = "" if last[0] is None else f"\n  at {last[0].full}"

    def follow(frame: types.FrameType, event: str, argument: Any) -> Any:
        look()
        if event == "line":
            last[0] = model_lines.of_frame(frame)
        elif event == "return":
            # The line that called goes on, perhaps to assign what is returned.
            last[0] = model_lines.of_stack(frame.f_back) or last[0]
        return follow

    def enter(frame: types.FrameType, event: str, argument: Any) -> Any:
        return follow if model_lines.is_model(frame.f_code.co_filename, "code") else None

    previous = sys.gettrace()
    sys.settrace(enter)
    try:
        with contextlib.suppress(Exception):
            run()
    finally:
        sys.settrace(previous)
    look()
    return [found.get(i, "") for i in range(len(places))]


def _state(place: Place) -> tuple[Any, Any]:
    value = place.value()
    if place.key is CONTENTS:
        return value, value.tobytes() if isinstance(value, np.ndarray) else len(value)
    return value, _version(value) if isinstance(value, torch.Tensor) else None


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else version_of(tensor)


def _differs(old: tuple[Any, Any], new: tuple[Any, Any]) -> bool:
    return old[0] is not new[0] or old[1] != new[1]
