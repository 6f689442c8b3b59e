"""ExecuTorch with XNNPACK, called from Python."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

TITLE = "ExecuTorch"
PRECISIONS = ("fp32",)


def missing() -> str | None:
    return None if find_spec("executorch") else "executorch not installed"


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    with torch.no_grad():
        program = torch.export.export(module, args)
        lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    path = directory / "model.pte"
    with path.open("wb") as file:
        lowered.write_to_file(file)
    return path


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import numpy as np
    import torch
    from executorch.extension.pybindings import portable_lib
    from executorch.runtime import Runtime

    portable_lib._unsafe_reset_threadpool(threads)
    program = Runtime.get().load_program(artifact)
    method = program.load_method("forward")
    args = [torch.from_numpy(np.load(path)) for path in inputs]

    def call() -> Any:
        return method.execute(args)

    # The method holds no reference to its program.
    call.program = program  # type: ignore[attr-defined]
    return call


def to_numpy(result: Any) -> list[Any]:
    return [output.numpy() for output in result]
