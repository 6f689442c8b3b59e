"""oneDNN, for whose operators there are no kernels here."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def without_onednn() -> Iterator[None]:
    """While active, torch chooses no operators of oneDNN."""
    with contextlib.ExitStack() as stack:
        with _silent():
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        try:
            yield
        finally:
            with _silent():
                stack.close()


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Setting one flag of oneDNN makes torch warn of others, for devices that are not there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
