"""What rules for tiles ask of the GPU that code is generated for."""

from __future__ import annotations

from typing import Any

import torch

# Where there is no GPU, as when a pass puts in an operator: the result has the same sizes with every tile.
_ANY = (100, 96 << 10)


def limits() -> tuple[int, int]:
    """Its multiprocessors, and the bytes of shared memory that a block may have."""
    if not torch.cuda.is_available():
        return _ANY
    gpu: Any = torch.cuda.get_device_properties(0)
    return gpu.multi_processor_count, gpu.shared_memory_per_block_optin
