"""Stock AOTInductor with freezing, as PyTorch ships it: aoti_compile_and_package, then aoti_load_package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TITLE = "AOTInductor"
PRECISIONS = ("fp32", "bf16")
# Inductor writes the number of threads into its code.
THREADS_IN_BUILD = True


def missing() -> str | None:
    return None


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    import torch

    with torch.no_grad():
        program = torch.export.export(module, args)
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=str(directory / "model.pt2"), inductor_configs={"freezing": True}
        )
    return Path(path)


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    compiled = torch._inductor.aoti_load_package(artifact)
    args = [torch.from_numpy(np.load(path)) for path in inputs]

    def call() -> Any:
        with torch.inference_mode():
            return compiled(*args)

    return call


def to_numpy(result: Any) -> list[Any]:
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    return [output.numpy() for output in outputs]
