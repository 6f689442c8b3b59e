"""GPUs of NVIDIA as a backend: see `aotpack.export.backends.backend.Backend`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version

from aotpack.building.module_sources import ModuleSources
from aotpack.building.native_sources import device_imports, module_imports, provider_imports, tensor_map_imports
from aotpack.errors import BuildError
from aotpack.export.backends.backend import Ahead, CompiledAsset, CompiledCode, Tools
from aotpack.export.backends.cuda.compile import compile_host_code, host_header, host_sources
from aotpack.export.backends.cuda.lower import LoweredCuda, lower
from aotpack.export.backends.precompiled import Precompiled, compile_ahead, in_background
from aotpack.export.ir.program import Program
from aotpack.export.passes.cuda.pipeline import CUDA
from aotpack.export.passes.runner import Pass
from aotpack.export.torch_compat.inductor.cuda.device_guard import cuda_device_guard
from aotpack.export.torch_compat.triton.kept_kernels import kernels_kept
from aotpack.targets import BY_NAME


class CudaBackend:
    """TorchInductor's Triton kernels and ours, compiled by Triton, and host code that launches them."""

    name = "cuda"

    @property
    def passes(self) -> tuple[Pass, ...]:
        return CUDA

    def headers(self, target: str, tools: Tools) -> tuple[Precompiled, ...]:
        header = host_header(target, tools.compiler)
        return () if header is None else (header,)

    def expects_headers(self, target: str, programs: Sequence[Program]) -> bool:
        return True

    @contextmanager
    def compile_ahead(self, program: Program, targets: Sequence[str], tools: Tools) -> Iterator[Ahead]:
        headers = {header for target in targets for header in self.headers(target, tools)}
        with cuda_device_guard(tools.cache, tools.compiler), kernels_kept(tools.cache), in_background() as pool:
            compile_ahead(headers, tools.cache, tools.compiler, pool)
            # Its sources are few, and need each other.
            yield lambda *_: None

    def lower(
        self,
        program: Program,
        target: str,
        *,
        weights_known: bool,
        shared: bool = False,
        hooks: bool = False,
        providers: Collection[str] = (),
        ahead: Ahead = lambda *_: None,
    ) -> LoweredCuda:
        if hooks:
            raise BuildError(
                f"modules for {target} cannot record the times of their kernels",
                hint="build without profile=True, and measure with the tools of the GPU",
            )
        return lower(program, target, weights_known=weights_known, shared=shared, providers=providers)

    def compile(
        self, module: LoweredCuda, tools: Tools, *, progress: Callable[[str], None] | None = None
    ) -> CompiledCode:
        gpu = BY_NAME[module.target].gpu
        assets: list[CompiledAsset] = []
        for kernel in module.device_code:
            assets.append(CompiledAsset(f"{kernel.name}.cubin", kernel.cubin))
            if gpu is not None and gpu.portable:
                # The driver reads text that ends with a zero.
                assets.append(CompiledAsset(f"{kernel.name}.ptx", kernel.ptx.encode() + b"\0"))
        return CompiledCode(
            compile_host_code(module, tools, progress=progress),
            imports=(
                *module_imports(),
                *device_imports(),
                # With providers in any case: every import has one place.
                *(tensor_map_imports() if module.tensor_maps or module.providers else ()),
                *(provider_imports() if module.providers else ()),
            ),
            assets=tuple(assets),
            features=("async", "host_steps") if module.host_shims else ("async",),
        )

    def sources(self, module: LoweredCuda, tools: Tools) -> ModuleSources:
        return host_sources(module, tools)

    def provenance(self, modules: Sequence[LoweredCuda], tools: Tools) -> dict[str, str]:
        return {"triton": version("triton")}
