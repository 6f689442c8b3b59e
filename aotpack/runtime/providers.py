"""Where libraries of NVIDIA's are that archives may ask for."""

from __future__ import annotations

import importlib.util
import os

# By the names that `aotpack build --provider` has: the files, in the order in which the runtime looks for them
# (csrc/runtime/hal/cuda/<provider>.cpp).
FILES = {
    "cublaslt": ("libcublasLt.so.13", "libcublasLt.so.12"),
    "cudnn": ("libcudnn.so.9", "libcudnn.so.8"),
    "cufft": ("libcufft.so.12", "libcufft.so.11"),
    "cusolver": ("libcusolver.so.12", "libcusolver.so.11"),
}


def installed_folders() -> list[str]:
    """The folders of installed packages such as `nvidia-cufft` that contain the libraries: the dynamic linker does not
    find them there. PyTorch depends on these packages. Nothing is imported.
    """
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    names = {name for files in FILES.values() for name in files}
    found = []
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        for package in sorted(_listed(root)):
            folder = os.path.join(root, package, "lib")
            if ":" not in folder and names & set(_listed(folder)):
                found.append(folder)
    return found


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
