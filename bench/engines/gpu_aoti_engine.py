"""Stock AOTInductor on the GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.engines import gpu

TITLE = "AOTInductor"
missing, to_numpy = gpu.missing, gpu.to_numpy


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    import torch

    dtype = next(module.parameters()).dtype
    (directory / "dtype").write_text(str(dtype).removeprefix("torch."))
    with torch.no_grad():
        program = torch.export.export(module.to("cuda"), tuple(x.to("cuda") for x in args))
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=str(directory / "model.pt2"), inductor_configs={"freezing": True}
        )
    return Path(path)


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import torch

    dtype = getattr(torch, (Path(artifact).parent / "dtype").read_text())
    return gpu.waiting(torch._inductor.aoti_load_package(artifact), gpu.arguments(inputs, dtype))
