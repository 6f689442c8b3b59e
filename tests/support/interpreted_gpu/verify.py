"""Verifies archives for GPUs on a host without one.

    python -m tests.support.interpreted_gpu.verify LIBRARY KERNELS ARCHIVE...

LIBRARY is what `tests.support.cuda_archives.build_fake_driver` compiles, KERNELS the folder of `recorded_kernels`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

from aotpack.cli.app import app
from tests.support.interpreted_gpu.interpreter import InterpretedGpu


def main() -> int:
    """1 where an archive answers otherwise than eager."""
    library, kernels, *archives = sys.argv[1:]
    failed = 0
    # Typer's newer versions import it for their first argument: here, once for all processes.
    with contextlib.suppress(ImportError):
        from pydantic import TypeAdapter  # noqa: F401
    for archive in archives:
        # A process that met a fault cannot use the device again.
        child = os.fork()
        if child == 0:
            os._exit(_verify(Path(library), Path(kernels), archive))
        failed += os.waitpid(child, 0)[1] != 0
    return 1 if failed else 0


def _verify(library: Path, kernels: Path, archive: str) -> int:
    gpu, start, status = InterpretedGpu(library, kernels), time.perf_counter(), 1
    try:
        app(["verify", "--device", "cuda:0", archive])
    except SystemExit as ended:
        status = 0 if ended.code in (0, None) else 1
    print(f"{archive}: {gpu.launches} launches in {time.perf_counter() - start:.1f} s", flush=True)
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    sys.exit(main())
