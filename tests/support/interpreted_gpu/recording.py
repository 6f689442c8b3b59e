"""Writes down the sources of the kernels that builds compile.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.runtime.triton_heuristics.CachingAutotuner.{fn, triton_meta, launchers}
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aotpack.export.torch_compat.inductor.cuda.kernels import KernelCompiler


@contextlib.contextmanager
def recorded_kernels(folder: Path) -> Iterator[None]:
    """Builds in this block leave a file in `folder` for each cubin, named by its SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    compile_kernel = KernelCompiler.triton

    def recording(self: KernelCompiler, name: str, source: str, device_str: str = "cuda") -> Any:
        tuner = compile_kernel(self, name, source, device_str)
        kernel = self.kernels[-1]
        record = {"name": name, "entry": kernel.entry, "source": source, **_specialization(tuner)}
        path = folder / f"{hashlib.sha256(kernel.cubin).hexdigest()}.json"
        if path.exists():
            # Code in which the divisibility of a parameter makes no difference.
            others = json.loads(path.read_text())["aligned"]
            record["aligned"] = [name for name in record["aligned"] if name in others]
        path.write_text(json.dumps(record))
        return tuner

    KernelCompiler.triton = recording  # type: ignore[method-assign]
    try:
        yield
    finally:
        KernelCompiler.triton = compile_kernel  # type: ignore[method-assign]


def _specialization(tuner: Any) -> dict[str, Any]:
    """What the kernel was compiled for: types of its parameters, constants, and parameters that 16 divides."""
    meta = tuner.triton_meta
    names = tuner.fn.arg_names
    aligned = [
        names[index]
        for attributes in meta.get("configs", ())
        for (index,), properties in attributes.items()
        if ["tt.divisibility", 16] in [list(p) for p in properties]
    ]
    constants = {names[key[0]] if isinstance(key, tuple) else key: v for key, v in meta["constants"].items()}
    config = tuner.launchers[0].config.kwargs
    return {"signature": meta["signature"], "constants": {**constants, **config}, "aligned": aligned}
