"""Memory and changes of tensors.

Private interfaces touched (torch 2.11 to 2.13):
  torch.UntypedStorage._cdata   data_ptr() is 0 for all tensors without memory
  torch.Tensor._version
"""

from __future__ import annotations

import torch


def storage_id(tensor: torch.Tensor) -> int:
    """Equal for tensors that share memory, fake and meta tensors too.

    Raises:
        NotImplementedError: the tensor has no memory of the usual kind.
    """
    return int(tensor.untyped_storage()._cdata)


def version_of(tensor: torch.Tensor) -> int:
    """Counts writes to the memory of a tensor.

    Raises:
        RuntimeError: it was made in inference mode.
    """
    return int(tensor._version)
