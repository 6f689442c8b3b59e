"""Tracing: how torch.export is called, and what becomes of its errors."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.export import ExportedProgram

from aotpack.errors import CaptureError
from aotpack.export import eager
from aotpack.export.interface import Call

# What torch.export appends to its messages.
_EXPORT_NOISE = (
    "\n\nThe error above occurred",
    "\nThe following call raised this error",
    "\nTo fix the error",
    "\nFor more information",
)


def trace(module: torch.nn.Module, call: Call, dynamic_shapes: Any) -> ExportedProgram:
    """The module as torch.export sees it in this call.

    Raises:
        CaptureError: it cannot be captured; the message names the line of the model, the hint the way out.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(
                module, call.args, call.kwargs or None, dynamic_shapes=dynamic_shapes, strict=False
            )
    except Exception as error:
        raise CaptureError(f"the model cannot be captured: {message(error)}", hint=_export_hint(str(error))) from error


def message(error: Exception) -> str:
    """What torch says, without its advice, and the line of the model."""
    text = str(error).strip()
    for noise in _EXPORT_NOISE:
        text = text.partition(noise)[0]
    return f"{text or type(error).__name__}{eager.model_line(error)}"


def _export_hint(text: str) -> str:
    if "data-dependent" in text or "GuardOnDataDependent" in text or "vmap" in text:
        return (
            "Python control flow on the values of tensors cannot be captured: use torch.where or torch.cond, "
            "or bound a size that comes out of data by torch._check"
        )
    if "Constraints violated" in text or "onstraint" in text:
        return "change dynamic_shapes as the message suggests, or make that dim static"
    return "torch.export.export(model, args) shows the same error with torch's own advice"
