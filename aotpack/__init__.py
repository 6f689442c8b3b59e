"""aotpack: compiles a PyTorch model into one file that runs without PyTorch.

    import aotpack

    model = aotpack.load("model.aotpack")
    y = model(x)  # numpy, torch or jax arrays; the result has the same type

Attributes are imported on first use, so that a process that only runs archives starts in milliseconds.
"""

from __future__ import annotations

from aotpack._version import __version__

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from aotpack import errors
    from aotpack.runtime import Context, Entry, Model, Tensor, load
    from aotpack.spec import DYNAMIC, Dim

__all__ = ["DYNAMIC", "Context", "Dim", "Entry", "Model", "Tensor", "__version__", "cmake_dir", "errors", "load"]


def cmake_dir() -> str:
    """The directory to pass to CMake as `aotpack_DIR`.

    With it, `find_package(aotpack)` finds the C and C++ runtime of this installation.

    Raises:
        FileNotFoundError: this installation does not contain the C++ files.
    """
    import os

    from aotpack.runtime import _native

    package = os.path.dirname(os.path.dirname(os.path.abspath(_native.__file__)))
    folder = os.path.join(package, "lib", "cmake", "aotpack")
    if not os.path.isfile(os.path.join(folder, "aotpack-config.cmake")):
        raise FileNotFoundError(f"this installation of aotpack does not contain its CMake files ({folder})")
    return folder


def __getattr__(name: str) -> object:
    if name == "errors":
        import aotpack.errors as errors_module

        return errors_module
    if name in __all__:
        from importlib import import_module

        home = "aotpack.spec" if name in ("DYNAMIC", "Dim") else "aotpack.runtime"
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'aotpack' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
