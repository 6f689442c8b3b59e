"""All cases, by name."""

from __future__ import annotations

from tests.conformance.onnx_files import made, wheels
from tests.conformance.onnx_files.case import FileCase

CASES: tuple[FileCase, ...] = (*wheels.CASES, *made.CASES)


def find(name: str) -> FileCase:
    """The case of a name."""
    return next(case for case in CASES if case.name == name)
