"""Errors of ONNX models, which name the node."""

from __future__ import annotations

from aotpack.errors import CaptureError


class OnnxError(CaptureError):
    """The ONNX model is malformed, or uses what cannot be captured. The message names the node."""


class NotConstantError(OnnxError):
    """A node computes in the call what has to be known when the archive is built."""
