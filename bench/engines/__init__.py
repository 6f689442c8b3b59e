"""One module per engine. Each has

TITLE                                what the tables call it
missing() -> str | None              why it cannot be built here (a package that is not installed), or None
MODELS                               if there: the only models that it has, without the suffix of a precision
PRECISIONS                           which of those in bench.precision it has; all when it is absent
build(module, args, directory)       makes the artifact from a module and example arguments; returns its path. For int8
                                     models the module is the path of an ONNX file
open_session(artifact, inputs, threads)
                                     loads the artifact and the inputs (paths of .npy files, in order); returns a
                                     function without arguments that runs one call and returns the engine's own kind of
                                     result
to_numpy(result)                     that result as a list of numpy arrays
SHARES_BUILD                         if there: the engine whose artifact it runs, when that one is measured too
THREADS_IN_BUILD                     if true: an artifact is for one number of threads
STARTS_TOGETHER                      if there: with --jobs it may start beside others, as its start is not compared

Nothing heavy is imported at the top of these modules: what a worker imports is part of what is measured.
"""

from importlib import import_module
from types import ModuleType

from bench.precision import precision_of

ENGINES = (
    "eager", "compile", "aoti", "onnxruntime", "openvino", "executorch", "llamacpp", "aotpack", "aotpack_bytes",
)  # fmt: skip
GPU_ENGINES = ("gpu_eager", "gpu_graph", "gpu_compile", "gpu_autotune", "gpu_aoti", "gpu_aotpack")
# Measured only where it is named: its build needs codes that were built before.
GPU_PACKED = "gpu_packed"


def get(name: str) -> ModuleType:
    """The module of the engine `name`; ValueError when there is none."""
    known = (*ENGINES, *GPU_ENGINES, GPU_PACKED)
    if name not in known:
        raise ValueError(f"unknown engine {name!r}; there are {', '.join(known)}")
    # The modules end in _engine so that a package and the module that measures it never share a name.
    return import_module(f"bench.engines.{name}_engine")


def offers(name: str, model: str) -> bool:
    """Whether the engine `name` has the model at all, installed or not."""
    engine, precision = get(name), precision_of(model)
    models = getattr(engine, "MODELS", None)
    known = models is None or model.removesuffix(f"-{precision}") in models
    return known and precision in getattr(engine, "PRECISIONS", (precision,))
