"""tests/support/torchless_worker.py for archives of GPUs on a host without one; this one imports torch.

python -m tests.support.interpreted_gpu.worker LIBRARY KERNELS

`driver_calls` says how often a function of the driver was called.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

from tests.support import torchless_worker
from tests.support.interpreted_gpu.interpreter import InterpretedGpu

if __name__ == "__main__":
    gpu = InterpretedGpu(Path(sys.argv[1]), Path(sys.argv[2]))
    torchless_worker.main(torchless=False, more={"driver_calls": gpu.driver_calls})
