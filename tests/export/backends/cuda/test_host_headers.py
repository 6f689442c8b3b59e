"""Host code of modules for GPUs is the same with and without a precompiled header."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aotpack.building.cache import BuildCache
from aotpack.building.processes import ProcessGroup
from aotpack.export import aot_export
from aotpack.export.backends import precompiled
from aotpack.export.backends.backend import Tools
from aotpack.export.backends.cpu import toolchain
from aotpack.export.backends.cpu.toolchain import Compiler
from aotpack.export.backends.cuda.compile import compile_host_code, host_header
from aotpack.export.backends.cuda.lower import lower
from aotpack.export.torch_compat.inductor.cuda.device_guard import cuda_device_guard

pytest.importorskip("triton")
COMPILER = toolchain.find_compiler().within(ProcessGroup())
pytestmark = [pytest.mark.torch, pytest.mark.skipif(COMPILER.is_clang, reason="clang compiles without")]


def compiled(module: object, cache: BuildCache, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, list[Sequence[str]]]:
    """The host code, and the compiler's command for the generated part."""
    commands: list[Sequence[str]] = []
    run = Compiler.run

    def noting(self: Compiler, arguments: list[str], *, cwd: Path) -> object:
        if "wrapper.cpp" in arguments:
            commands.append(arguments)
        return run(self, arguments, cwd=cwd)

    with monkeypatch.context() as patch:
        patch.setattr(Compiler, "run", noting)
        return compile_host_code(module, Tools(cache, COMPILER)), commands  # type: ignore[arg-type]


def test_the_same_object_with_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = "cuda-sm_90"
    cold = BuildCache(tmp_path / "cold")
    program = aot_export(lambda x: x.softmax(-1) + torch.rand_like(x), (torch.randn(8, 48),))
    with cuda_device_guard(cold, COMPILER):
        module = lower(program, target)
    expected, commands = compiled(module, cold, monkeypatch)
    assert not any("-include" in command for command in commands)

    warm = BuildCache(tmp_path / "warm")
    header = host_header(target, COMPILER)
    assert header is not None
    for _ in range(2):
        precompiled.missed(header, BuildCache(warm.root))
    with ThreadPoolExecutor(1) as pool:
        precompiled.compile_ahead([header], warm, COMPILER, pool)
    found, commands = compiled(module, warm, monkeypatch)
    assert len(commands) == 1 and "-include" in commands[0], "compiled once, with the header"
    assert found == expected

    # All GPUs have one: host code does not depend on them.
    other = host_header("cuda-sm_80", COMPILER)
    assert other is not None and other == host_header(target, COMPILER)
    assert compiled(replace(module, wrapper=f"{module.wrapper}\n// other"), cold, monkeypatch)[0] == expected
