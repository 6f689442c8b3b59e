"""Stock AOTInductor on the GPU, loaded by the class behind `aoti_load_package`, which does not look for a compiler."""

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
    # Inputs and results are flat. aoti_load_package runs a compiler first, for tens of seconds.
    loader = torch._C._aoti.AOTIModelPackageLoader(artifact, "model", False, 1, -1)
    return gpu.waiting(lambda *args: loader.run(list(args)), gpu.arguments(inputs, dtype))
