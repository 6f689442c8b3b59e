"""Compiles the modules of a unit: those for one target side by side, the code of repeated blocks once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace

from aotpack.export.backends.backend import Backend, CompiledCode, LoweredModule, Tools
from aotpack.export.driver.compiled import CompiledModule
from aotpack.export.ir.program import Program


@dataclass(frozen=True)
class Lowered:
    """A module that is not compiled yet, unless it is the code of another stage, `model`."""

    backend: Backend
    program: Program
    module: LoweredModule
    stage: int
    model: int | None = None


def compile_modules(
    lowered: Sequence[Lowered], tools: Tools, progress: Callable[[str], None]
) -> tuple[CompiledModule, ...]:
    """The modules of a unit for one target.

    Args:
        lowered: their sources.
        tools: what compiles them; `jobs` is the number of compilers for all modules together.
        progress: called with the name of each source after it compiles.

    Raises:
        CompileError: the compiler failed.
    """
    own = [each for each in lowered if each.model is None]
    codes = dict(zip((each.stage for each in own), _compiled(own, tools, progress), strict=True))
    return tuple(
        CompiledModule(
            each.backend, each.program, each.module, codes[each.stage if each.model is None else each.model], each.stage
        )
        for each in lowered
    )


def _compiled(lowered: Sequence[Lowered], tools: Tools, progress: Callable[[str], None]) -> list[CompiledCode]:
    if len(lowered) == 1:
        return [lowered[0].backend.compile(lowered[0].module, tools, progress=progress)]
    jobs = tools.jobs or len(os.sched_getaffinity(0))
    side_by_side = min(len(lowered), jobs)
    each_with = replace(tools, jobs=max(1, jobs // side_by_side))
    pool = ThreadPoolExecutor(side_by_side)
    try:
        futures = [pool.submit(each.backend.compile, each.module, each_with, progress=progress) for each in lowered]
        for future in as_completed(futures):
            # The first that fails says why; what is killed then fails too.
            future.result()
        return [future.result() for future in futures]
    except BaseException:
        if tools.compiler.group is not None:
            tools.compiler.group.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
