"""Files that exporters make here: torch.onnx, skl2onnx, and graphs as the converter of TensorFlow writes them.

python -m tests.conformance.onnx_files.made CASE FILE.onnx
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conformance.onnx_files import made_channels_last, made_scikit, made_torch
from tests.conformance.onnx_files.case import FileCase

CASES: tuple[FileCase, ...] = (*made_torch.CASES, *made_scikit.CASES, *made_channels_last.CASES)


def make(name: str, path: Path) -> None:
    """Writes the file of a case."""
    kind, _, rest = name.partition("/")
    module = {"torch": made_torch, "scikit": made_scikit, "channels-last": made_channels_last}[kind]
    module.make(rest, path)


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
