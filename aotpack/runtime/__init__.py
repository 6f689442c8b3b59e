"""Runs archives. Imports only the native module; numpy only if numpy arrays are passed; torch and jax never.

`load` returns a `Model`, which is called like its source model. A call accepts numpy, torch or jax arrays, or any
object with `__dlpack__` or the buffer protocol, in CPU memory or on the device of the model. The results are arrays of
the library of the first array argument, otherwise `Tensor`; on a device, of the first argument that is there, and part
of the work of torch's current stream if that is a torch tensor. Results own their memory and have the strides of the
source model's results. Scalars of the signature are Python ints, floats or bools.
"""

from __future__ import annotations

from aotpack.runtime._native import Tensor, host_target
from aotpack.runtime.context import Context
from aotpack.runtime.entry import Entry
from aotpack.runtime.model import Model

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    import os
    from typing import Literal

__all__ = ["Context", "Entry", "Model", "Tensor", "host_target", "load"]


def load(
    path: str | os.PathLike[str],
    *,
    verify: Literal["code", "full"] = "code",
    copy: bool | None = None,
    device: str = "cpu",
    num_threads: int | None = None,
    graphs: int | None = None,
    prefetch: bool = False,
) -> Model:
    """Maps an archive and loads its modules for the best target that this machine supports.

    Args:
        path: the archive.
        verify: "code" checks the structure, the manifest and all executable code against their hashes. "full" checks
            every byte, including the weights, in time proportional to their size.
        copy: False maps the file: all processes share its pages, and it must not be written to while the model is in
            use (replace it by renaming; docs/deployment.md). True reads it into sealed memory of this process. None:
            the environment variable AOTPACK_LOAD, "map" or "copy", decides; the default is "map".
        device: the device on which the model runs: "cpu", or "cuda:0" and the like.
        num_threads: number of threads per call; None: one per core that is available to this process.
        graphs: number of CUDA graphs that a context keeps at most (docs/gpu.md); 0: none; None: 8. Ignored on the CPU.
        prefetch: threads map the pages of the file while the model loads and after it, so that the first call does not
            wait for page faults. All pages then count in the resident set, and what the page cache lacks is read.
            Ignored where the file is copied.

    Raises:
        ValueError: the path contains a null character, or `device` is not the name of a device.
        ArchiveNotFoundError (a FileNotFoundError): the file does not exist.
        ForeignArchiveError, TruncatedArchiveError, MalformedArchiveError, TamperedArchiveError,
        UnsupportedVersionError: the file is not an archive that this version supports.
        UnsupportedTargetError: the archive has no module for this machine, or it cannot run on `device`.
        MissingImportError: a module imports a function or library that is not available.
        MissingWeightsError: the archive is code-only; `aotpack pack` creates an archive with weights from it.
    """
    return Model(
        path,
        verify=verify,
        copy=copy,
        device=device,
        num_threads=num_threads,
        graphs=graphs,
        prefetch=prefetch,
    )
