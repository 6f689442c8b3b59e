"""CPUs as a backend: see `aotpack.export.backends.backend.Backend`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial

from aotpack.building.module_sources import ModuleSources
from aotpack.building.native_sources import module_imports, profile_imports
from aotpack.export.backends.backend import Ahead, CompiledCode, Tools
from aotpack.export.backends.cpu import custom_units
from aotpack.export.backends.cpu.compile import compile_module, headers, kernels_ahead, module_sources
from aotpack.export.backends.cpu.lower import Lowered, has_own_headers, is_plain, kernel_shims, lower
from aotpack.export.backends.halves import used_halves
from aotpack.export.backends.precompiled import Precompiled
from aotpack.export.ir.program import Program
from aotpack.export.passes.cpu.pipeline import CPU
from aotpack.export.passes.runner import Pass


class CpuBackend:
    """TorchInductor's C++ with the kernels of csrc/kernels, compiled by the build machine's C++ compiler or a cross
    compiler.
    """

    name = "cpu"

    @property
    def passes(self) -> tuple[Pass, ...]:
        return CPU

    def headers(self, target: str, tools: Tools) -> tuple[Precompiled, ...]:
        return headers(target, tools.for_target(target))

    def expects_headers(self, target: str, programs: Sequence[Program]) -> bool:
        return not (has_own_headers(target) and all(map(is_plain, programs)))

    def compile_ahead(self, program: Program, targets: Sequence[str], tools: Tools) -> AbstractContextManager[Ahead]:
        return kernels_ahead(kernel_shims(program), targets, tools, halves=used_halves(program))

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
    ) -> Lowered:
        known = weights_known and not shared
        return lower(program, target, weights_known=known, hooks=hooks, ahead=partial(ahead, target))

    def compile(self, module: Lowered, tools: Tools, *, progress: Callable[[str], None] | None = None) -> CompiledCode:
        code = compile_module(module, tools.for_target(module.target), progress=progress)
        return CompiledCode(code, (*module_imports(), *(profile_imports() if module.hooks else ())))

    def sources(self, module: Lowered, tools: Tools) -> ModuleSources:
        return module_sources(module, tools.for_target(module.target))

    def provenance(self, modules: Sequence[Lowered], tools: Tools) -> dict[str, str]:
        return {
            "flags": f"-O{tools.opt_level}",
            **{
                f"kernel {operator}": files
                for module in modules
                for operator, files in custom_units.described(module.custom)
            },
        }
