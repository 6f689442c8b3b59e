"""torch.compile with freezing and `max-autotune`. The build fills caches, with which it compiles at its start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bench.engines import eager_engine

TITLE = "torch.compile"
PRECISIONS = ("fp32", "bf16")
# Inductor writes the number of threads into its code.
THREADS_IN_BUILD = True
missing, to_numpy = eager_engine.missing, eager_engine.to_numpy


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    """Saves the module and compiles it once; `directory` gets the caches, which `bench.process` places there."""
    path = eager_engine.build(module, args, directory)
    call = _compiled(module, list(args))
    for _ in range(3):
        call()
    return path


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    # Before torch is imported, which reads it.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(artifact).parent / "build-cache" / "inductor")
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    # The file is one that this bench wrote a moment ago; it holds a whole module, hence weights_only=False.
    module = torch.load(artifact, weights_only=False, mmap=True)
    return _compiled(module, [torch.from_numpy(np.load(path)) for path in inputs])


def _compiled(module: Any, args: list[Any]) -> Any:
    import torch
    from torch._inductor import config

    config.freezing = True
    function = torch.compile(module, mode="max-autotune-no-cudagraphs")

    def call() -> Any:
        # Freezing wants this mode, in which versions of parameters stay known.
        with torch.no_grad():
            return function(*args)

    return call
