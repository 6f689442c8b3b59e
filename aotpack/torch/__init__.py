"""Archives as layers of training scripts in PyTorch (docs/autograd.md). torch is imported when a function is called."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    import torch

    from aotpack.runtime import Model

__all__ = ["as_module"]


def as_module(
    archive: Model | str | os.PathLike[str],
    *,
    trainable: bool = True,
    entry: str = "forward",
    seed: int | None = None,
    num_threads: int | None = None,
) -> torch.nn.Module:
    """A module that runs an archive forward and backward.

    The archive was captured with `mode="forward_backward"`. Its module is called with the arguments of the model and
    returns what the model returns; outputs are part of the autograd graph. Parameters and buffers have the names of the
    model's state dict and share the memory of a context of the archive, so optimizers change them in place, and
    `load_state_dict` does too. It computes what the model did in the mode of the capture: `train()` and `eval()` change
    nothing. Without gradients, as under `torch.no_grad()`, it keeps nothing for a backward.

    Args:
        archive: the archive, or a model that is loaded.
        trainable: whether parameters require gradients.
        entry: the name of the forward.
        seed: of random operators; None: a new seed from the operating system.
        num_threads: threads per call; None: those of the model.

    Raises:
        InputError: the entry has no backward.
        EntryNotFoundError: the archive has no such entry.
        The errors of `aotpack.load` for a path.

    Errors of calls are those of `Entry.forward` and `Entry.backward`. A second derivative, a gradient of an input that
    the capture did not ask for, and tensors that were replaced by others (`module.to(dtype)`) are RuntimeErrors.
    """
    from aotpack.torch.module import ArchiveModule

    return ArchiveModule.of(archive, trainable=trainable, entry=entry, seed=seed, num_threads=num_threads)
