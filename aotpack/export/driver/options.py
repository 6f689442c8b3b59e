"""The options of a build."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from aotpack.export.driver.regions import MARKED


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build.

    Attributes:
        check: run the example calls of the finished archive in a separate process and compare the outputs with eager's.
            The build fails if they differ.
        goldens: store the example call and eager's outputs in the archive, for `aotpack verify`.
        cache_dir: directory of the build cache. Default: `$AOTPACK_CACHE_DIR` or the XDG cache directory. After a build
            that adds files, the least recently used files above `$AOTPACK_CACHE_SIZE` (default: 5 GB) are removed.
        compiler: the C++ compiler, a path or a command such as `ccache g++`. Default: $CXX, g++, clang++ or c++.
        jobs: number of concurrent compiler processes. Default: one per core.
        opt_level: optimization level of generated C++, 1 to 3. Default: `$AOTPACK_OPT_LEVEL` or 3. At level 1 generated
            kernels compile in less than half the time and may be slower. Kernels of aotpack are optimized at any level.
        without: names of passes to leave out (`aotpack.export.driver.pipeline.switchable`), or `"all"`.
        updatable: store the original weights, and folding as a separate entry, so that the runtime can replace weights
            (`Model.update_weights`). Otherwise the archive is frozen: it contains only folded and packed weights.
        code_only: leave the weights out: an updatable archive that cannot run until `aotpack pack` adds them. The
            parameters and persistent buffers of the model need no values, and may be on the meta device. Example calls
            are neither run nor stored (`check` and `goldens` have no effect).
        host_steps: run operators without a GPU kernel on the host, with copies of what they read and return. Otherwise
            such operators are not supported in builds for GPUs.
        providers: libraries of NVIDIA's that modules for GPUs call where the host has them: `"cublaslt"` for matrix
            products and `"cudnn"` for convolutions, which otherwise this project's kernels compute; `"cufft"` for
            Fourier transforms and `"cusolver"` for linear algebra, which otherwise run on the host (docs/gpu.md).
        description: store what `aotpack inspect --graph` and `--html` show: the graph by module, the nodes that each
            kernel computes, and the memory of values. Compressed, about 15 bytes for each node of the graph.
        profile: have the modules record when each kernel begins and ends, for `aotpack bench --per-kernel` and the like
            (docs/inspect.md). Costs some ten nanoseconds for each kernel of a call; for CPUs only.
        float32_products: how GPUs multiply float32 in products, convolutions and attention. `"tf32x3"`: three times in
            TF32 on tensor cores, with the error of single precision for operands of magnitudes from 1e-34 to 3.3e38.
            `"ieee"`: without tensor cores, for all operands; several times slower. `"tf32"`: once, with 10 bits of each
            mantissa; example calls are then compared with the tolerance of float16. Sums have single precision always,
            and CPUs compute in full precision.
        sources: store the sources of the modules with all headers that they include, so that `aotpack unpack` writes a
            folder that CMake builds without torch. Adds about 300 KB to the archive.
        free_source: free the source module's tensors as soon as they are packed. The module and `program` cannot be
            used afterwards, even if the build fails.
        regions: code that is compiled once and called with different weights (docs/regions.md): `"marked"`: functions
            under `torch.compiler.nested_compile_region`; `"auto"`: also modules that the model repeats, such as the
            layers of a transformer; `"off"`: none.
        tune_seconds: seconds in which to measure, on this machine, which algorithms convolutions use in modules that it
            runs (docs/tuning.md); 0: none, and a cost model decides, the same on every machine. `aotpack build --tune`
            sets it.
        tune_threads: numbers of threads of a call to measure with. Default: one per core.
    """

    check: bool = True
    goldens: bool = True
    cache_dir: str | os.PathLike[str] | None = None
    compiler: str | None = None
    jobs: int | None = None
    opt_level: int | None = None
    without: Collection[str] = ()
    updatable: bool = False
    code_only: bool = False
    host_steps: bool = True
    providers: Collection[str] = ()
    description: bool = True
    profile: bool = False
    float32_products: str = "tf32x3"
    sources: bool = False
    free_source: bool = False
    regions: str = MARKED
    tune_seconds: float = 0.0
    tune_threads: Collection[int] = ()
