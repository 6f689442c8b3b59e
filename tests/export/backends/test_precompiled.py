"""Precompiled headers: made once two builds did without, used by later ones, in objects that are the same without."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aotpack.building.cache import BuildCache
from aotpack.building.processes import ProcessGroup
from aotpack.building.waiting import WaitingCompiler
from aotpack.export import aot_export
from aotpack.export.backends import precompiled
from aotpack.export.backends.backend import Tools
from aotpack.export.backends.cpu import compile, kernel_source, toolchain, wrapper_words
from aotpack.export.backends.cpu.lower import Lowered, lower
from aotpack.export.backends.cpu.toolchain import Compiler
from aotpack.targets import Target

TARGET = Target.host().name
COMPILER = toolchain.find_compiler().within(ProcessGroup())
HEADERS = compile.headers(TARGET, Tools(BuildCache(None), COMPILER))

pytestmark = pytest.mark.skipif(COMPILER.is_clang, reason="clang compiles without")


def tools(cache: BuildCache) -> Tools:
    return Tools(cache, COMPILER)


def ahead(cache: BuildCache, headers: Sequence[precompiled.Precompiled] = HEADERS) -> None:
    with ThreadPoolExecutor(1) as pool:
        precompiled.compile_ahead(headers, cache, COMPILER, pool)


def missed_twice(folder: Path, headers: Sequence[precompiled.Precompiled] = HEADERS) -> None:
    """As two builds leave the cache."""
    for _ in range(2):
        cache = BuildCache(folder)
        for header in [*headers, *headers]:
            precompiled.missed(header, cache)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def has_all(cache: BuildCache) -> bool:
    return all(precompiled.include_flags(header, cache) for header in HEADERS)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with both headers."""
    cache = BuildCache(tmp_path_factory.mktemp("headers"))
    missed_twice(cache.root)
    ahead(cache)
    assert has_all(cache)
    return cache.root


def test_who_builds_once_or_again_does_not_pay(lowered: Lowered, shared: BuildCache, tmp_path: Path) -> None:
    cache = without_generated_code(lowered, shared, tmp_path)
    for _ in range(2):
        # The second time nothing is compiled.
        compiled(lowered, BuildCache(tmp_path))
        ahead(cache)
        assert not any(cache.path(header.key, ".h.gch").exists() for header in HEADERS)
    # Another module.
    compiled(replace(lowered, wrapper=f"{lowered.wrapper}\n// other"), BuildCache(tmp_path))
    ahead(cache, HEADERS[1:])
    assert cache.path(HEADERS[1].key, ".h.gch").exists()
    ahead(cache, HEADERS[:1])
    assert not cache.path(HEADERS[0].key, ".h.gch").exists(), "only its wrapper was compiled"


def _floats(x: torch.Tensor, i: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Several kernels, checks of indices, random numbers, a product."""
    return (x.softmax(-1) + torch.rand_like(x)) @ w, x[i].cumsum(0)


def _others(x: torch.Tensor, i: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Its wrapper includes torch's element types."""
    return (x @ w).to(torch.bfloat16).tanh(), x.to(torch.cfloat).exp().imag[i]


@pytest.fixture(scope="module", params=[_floats, _others])
def lowered(request: pytest.FixtureRequest) -> Lowered:
    example = (torch.randn(32, 48), torch.tensor([3, 1]), torch.randn(48, 48))
    with pytest.MonkeyPatch.context() as patch:
        # Wrappers as large programs have them: others include a header of aotpack's own.
        patch.setattr(wrapper_words, "has_own_words", lambda generated: False)
        found = lower(aot_export(request.param, example), TARGET)
    assert ("c10/util" in found.wrapper) == (request.param is _others)
    return found


@pytest.fixture(scope="module")
def shared(lowered: Lowered, cache_dir: Path) -> BuildCache:
    """The cache of all tests, which has the objects of our own sources."""
    cache = BuildCache(cache_dir)
    compile.compile_module(lowered, tools(cache))
    return cache


@pytest.fixture(scope="module")
def cold(lowered: Lowered, shared: BuildCache, tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    """A cache without headers in which generated code was compiled."""
    cache = without_generated_code(lowered, shared, tmp_path_factory.mktemp("cold"))
    assert not any("-include" in command for command in compiled(lowered, cache))
    return cache


def with_torchs(lowered: Lowered) -> list[str]:
    """The sources of kernels that include what is precompiled; others include aotpack's headers."""
    return [text for text in lowered.units if text.startswith(kernel_source.PREFIX)]


def compiled(lowered: Lowered, cache: BuildCache, waiting: Sequence[WaitingCompiler] = ()) -> list[list[str]]:
    """Compiles the module; the commands that compile generated code."""
    commands: list[list[str]] = []
    run = Compiler.run

    def noting(self: Compiler, arguments: list[str], **options: Any) -> object:
        # A compiler that waits may get here late, on a busy machine.
        waits = options.get("source") is not None
        if not waits and "-c" in arguments and arguments[arguments.index("-c") + 1].startswith(("kernels", "wrapper")):
            commands.append(arguments)
        return run(self, arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compiler, "run", noting)
        compile.compile_module(lowered, replace(tools(cache), waiting=tuple(waiting)))
    return commands


def objects_of_generated_code(lowered: Lowered, cache: BuildCache) -> list[bytes]:
    return [cache.path(unit.key, ".o").read_bytes() for unit in compile._units(lowered, tools(cache)) if unit.text]


def without_generated_code(lowered: Lowered, cold: BuildCache, folder: Path) -> BuildCache:
    """A cache that has the objects of our own sources alone."""
    cache = BuildCache(folder)
    for unit in compile._units(lowered, tools(cache)):
        if unit.path is not None and unit.made is None:
            cache.aside(unit.key, ".o", lambda path, key=unit.key: os.link(cold.path(key, ".o"), path))  # type: ignore[misc]
    return cache


def test_objects_are_the_same_without(lowered: Lowered, cold: BuildCache, warm: Path, tmp_path: Path) -> None:
    cache = without_generated_code(lowered, cold, tmp_path)
    for path in BuildCache(warm).folder.glob("??/*"):
        (cache.folder / path.parent.name).mkdir(exist_ok=True)
        os.link(path, cache.folder / path.parent.name / path.name)
    commands = compiled(lowered, cache)
    assert len(commands) == len(lowered.units) + 1
    assert sum("-include" in command for command in commands) == len(with_torchs(lowered)) + 1
    assert objects_of_generated_code(lowered, cache) == objects_of_generated_code(lowered, cold)


def test_compilers_wait_where_there_are_none(lowered: Lowered, cold: BuildCache, tmp_path: Path) -> None:
    cache = without_generated_code(lowered, cold, tmp_path)
    with precompiled.compilers_waiting(HEADERS, cache, COMPILER) as waiting:
        assert len(waiting) == 2
        commands = compiled(lowered, cache, waiting)
    assert len(commands) == len(lowered.units) - 1, "one compiler of kernels waits"
    assert objects_of_generated_code(lowered, cache) == objects_of_generated_code(lowered, cold)


def test_none_waits_where_there_are_some(warm: Path) -> None:
    with precompiled.compilers_waiting(HEADERS, BuildCache(warm), COMPILER) as waiting:
        assert not waiting


def test_the_compiler_takes_them(lowered: Lowered, warm: Path, tmp_path: Path) -> None:
    # GCC says by -H which files it reads: "! path" is a precompiled header that it uses, "x path" one that it does not.
    for header, text in zip(HEADERS, [with_torchs(lowered)[0], lowered.wrapper], strict=True):
        source = tmp_path / "source.cpp"
        source.write_text(text)
        include = precompiled.include_flags(header, BuildCache(warm))
        flags = [*header.flags, *include, "-H", "-c", str(source), "-o", str(tmp_path / "source.o")]
        told = subprocess.run([*COMPILER.command, *flags], capture_output=True, text=True, check=True).stderr
        assert f"! {include[1]}.gch" in told.splitlines()[0]
        assert "cpp_prefix.h" not in told and "shim.h" not in told


def test_a_damaged_header_costs_time_alone(lowered: Lowered, cold: BuildCache, warm: Path, tmp_path: Path) -> None:
    cache = without_generated_code(lowered, cold, tmp_path)
    for header in HEADERS:
        cache.aside(header.key, ".h", lambda path: _write(path, b"#error not to be read\n"))
        part = BuildCache(warm).path(header.key, ".h.gch").read_bytes()[:100_000]
        cache.aside(header.key, ".h.gch", lambda path, part=part: _write(path, part))  # type: ignore[misc]
    assert has_all(cache)
    commands = compiled(lowered, cache)
    assert len(commands) == len(lowered.units) + 1 + len(with_torchs(lowered)) + 1, "each with a header fails once"
    assert objects_of_generated_code(lowered, cache) == objects_of_generated_code(lowered, cold)


def test_a_flipped_bit_makes_it_again(warm: Path, tmp_path: Path) -> None:
    source, cache, header = BuildCache(warm), BuildCache(tmp_path), HEADERS[1]
    missed_twice(tmp_path, [header])
    for suffix in (".h", ".h.gch"):
        cache.aside(header.key, suffix, lambda path, suffix=suffix: _write(path, _content(source, header, suffix)))  # type: ignore[misc]
    good = _content(cache, header, ".h.gch")
    path = cache.path(header.key, ".h.gch")
    path.write_bytes(good[:1000] + bytes([good[1000] ^ 4]) + good[1001:])
    assert precompiled.include_flags(header, cache) == ()
    with ThreadPoolExecutor(1) as pool:
        precompiled.compile_ahead([header], cache, COMPILER, pool)
    assert precompiled.include_flags(header, cache)


def _content(cache: BuildCache, header: precompiled.Precompiled, suffix: str) -> bytes:
    return cache.path(header.key, suffix).read_bytes()


def test_other_headers_compilers_and_flags_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(compiler: Compiler = COMPILER, flags: tuple[str, ...] = ("-O1",), line: str = "#include <a.h>") -> str:
        header = precompiled.precompiled("a.cpp", line, flags, compiler)
        assert header is not None
        return header.key

    keys = {key(), key(Compiler(COMPILER.path, "g++ 99")), key(Compiler("/other/g++", COMPILER.version))}
    keys |= {key(flags=("-O2",)), key(line="#include <b.h>")}
    with monkeypatch.context() as patch:
        patch.setattr(precompiled.native_sources, "headers_hash", lambda: "changed")
        keys.add(key())
    assert len(keys) == 6
    assert precompiled.precompiled("", "", (), Compiler("clang++", "Debian clang version 19.1")) is None
