"""Several ONNX models in one archive, which runs in a process without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import torch

from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.importer import load_onnx
from tests.conformance.onnx_worker import Joined
from tests.export.onnx.one_node import Array
from tests.support.torchless import RemoteModel, Torchless

Calls = Mapping[str, tuple[onnx.ModelProto, list[Array]]]


class JoinedArchive:
    """One archive of several models. Each has a name and the inputs of its call."""

    def __init__(self, calls: Calls, folder: Path) -> None:
        self._names = list(calls)
        self._calls = [[dtypes.from_numpy(value) for value in inputs] for _, inputs in calls.values()]
        with torch.no_grad():
            modules = [load_onnx(m, c).module for (m, _), c in zip(calls.values(), self._calls, strict=True)]
            program = aot_export(Joined(list(modules)), self._calls)
        build_archive(program, folder / "m.aotpack", options=BuildOptions(opt_level=1, jobs=1))
        self._process = Torchless()
        self._model: RemoteModel = self._process.load(folder / "m.aotpack")

    def results(self) -> dict[str, list[Any]]:
        """The outputs of each model."""
        return dict(zip(self._names, self._model(*self._calls), strict=True))

    def close(self) -> None:
        self._process.close()
