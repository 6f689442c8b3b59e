"""Objects that come with the package: which are taken, and that a module of them computes the same."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotpack.building import flags, native_sources, objects
from aotpack.building.compiler import Compiler, find_compiler
from aotpack.errors import CompileError

TARGET = "x86-64-v3"
SOURCE = native_sources.module_folder() / "trace.cpp"


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    found = find_compiler()
    if found.is_clang or found.identity != found.version:
        pytest.skip("CXX is not a GCC without flags")
    return found


@pytest.fixture
def folder(tmp_path: Path, compiler: Compiler) -> Path:
    assert objects.compile_objects(tmp_path / "objects", [SOURCE], [TARGET], compiler) == 1
    return tmp_path / "objects"


def key(target: str = TARGET) -> str:
    own = flags.library_flags(target, halves=frozenset(), optimize=flags.optimization(SOURCE), source=SOURCE)
    return objects.key_of(SOURCE, own)


def test_an_object_is_found_by_what_decides_it(
    folder: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = objects.find(key(), compiler, folder)
    assert found is not None
    assert found.compiler == compiler.version
    assert found.path.read_bytes()[:4] == b"\x7fELF"
    assert objects.find(key("x86-64-v4"), compiler, folder) is None
    monkeypatch.setenv("AOTPACK_TRACE", "1")
    assert objects.find(key(), compiler, folder) is None


def test_other_compilers_take_none(folder: Path, compiler: Compiler) -> None:
    assert objects.find(key(), replace(compiler, version="clang version 19"), folder) is None
    assert objects.find(key(), replace(compiler, arguments=("-fsanitize=address",)), folder) is None
    index = json.loads((folder / "compiler.json").read_text())
    newer = folder.parent / "newer"
    shutil.copytree(folder, newer)
    (newer / "compiler.json").write_text(json.dumps({**index, "major": index["major"] + 1}))
    assert objects.find(key(), compiler, newer) is None
    older = folder.parent / "older"
    shutil.copytree(folder, older)
    (older / "compiler.json").write_text(json.dumps({**index, "major": index["major"] - 1}))
    assert objects.find(key(), compiler, older) is not None


def test_a_package_without_objects(tmp_path: Path, compiler: Compiler) -> None:
    assert objects.find(key(), compiler, tmp_path / "none") is None


def test_only_what_is_missing_is_compiled(folder: Path, compiler: Compiler) -> None:
    (kept,) = folder.glob("*.o")
    before = kept.stat().st_mtime_ns
    (folder / f"{'0' * 64}.o").write_bytes(b"of an older source")
    (folder / f"{'1' * 64}.partial").write_bytes(b"of a run that was killed")
    (folder / "notes.o").write_bytes(b"of the user")
    assert objects.compile_objects(folder, [SOURCE], [TARGET], compiler) == 1
    assert {path.name for path in folder.iterdir()} == {kept.name, "compiler.json", "notes.o"}
    assert kept.stat().st_mtime_ns == before


def test_what_the_compiler_says_is_reported(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flags, "COMMON", (*flags.COMMON, "-include", "absent.h"))
    with pytest.raises(CompileError, match=r"trace\.cpp cannot be compiled:[\s\S]*absent\.h"):
        objects.compile_objects(tmp_path, [SOURCE], [TARGET], compiler)
    assert not list(tmp_path.iterdir())


def test_each_half_precision_has_its_object(compiler: Compiler) -> None:
    """Those that models of one dtype ask for, and no others."""
    source = native_sources.source_root() / "kernels" / "gemm.cpp"
    keys = objects.wanted([source, SOURCE], [TARGET, "x86-64-v4"])
    assert sorted(item.source.name for item in keys.values()) == ["gemm.cpp"] * 6 + ["trace.cpp"] * 2


@pytest.mark.torch
def test_a_build_takes_them(tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a model's sources but those with torch's headers; the results are the same."""
    torch = pytest.importorskip("torch")
    from aotpack.export import BuildOptions, aot_export, build_archive
    from aotpack.export.backends import native
    from aotpack.export.backends.cpu.compile import library_units

    model, x = torch.nn.Linear(8, 4).eval(), torch.randn(3, 8)
    compiled: list[str] = []
    compile_unit = native.compile_unit

    def noted(compiler: Compiler, unit: native.Unit, output: Path) -> None:
        compiled.append(unit.name)
        compile_unit(compiler, unit, output)

    monkeypatch.setattr(native, "compile_unit", noted)
    monkeypatch.setattr("aotpack.export.backends.cpu.compile.compile_unit", noted)
    program = aot_export(model, (x,))
    build_archive(program, tmp_path / "a.aotpack", targets=[TARGET], options=BuildOptions(cache_dir=tmp_path / "a"))
    sources = [native_sources.source_root() / name for name in compiled if name not in ("wrapper.cpp", "kernels0.cpp")]
    assert sources
    objects.compile_objects(tmp_path / "objects", sources, [TARGET], compiler)
    monkeypatch.setattr(objects, "packaged", lambda: tmp_path / "objects")
    compiled.clear()
    build_archive(program, tmp_path / "b.aotpack", targets=[TARGET], options=BuildOptions(cache_dir=tmp_path / "b"))
    assert set(compiled) <= {"wrapper.cpp", "kernels0.cpp"}
    assert (tmp_path / "a.aotpack").read_bytes() == (tmp_path / "b.aotpack").read_bytes()
    assert all(unit.made for unit in library_units(TARGET, [], compiler, halves=frozenset()))


def test_targets_that_the_compiler_does_not_know_are_left_out(compiler: Compiler) -> None:
    class Older(Compiler):
        def run(self, arguments: Any, **options: Any) -> Any:
            return super().run([*arguments, *(["-mno-such-thing"] if "-mamx-bf16" in arguments else [])], **options)

    older = Older(compiler.path, compiler.version, compiler.arguments)
    targets = ("x86-64-v3", "x86-64-v4-amx", "x86-64-v4-bf16")
    assert set(objects.compilable(targets, older)) == set(objects.compilable(targets, compiler)) - {"x86-64-v4-amx"}
    assert "x86-64-v3" in objects.compilable(targets, older)


def test_few_objects_are_for_targets_with_bf16_alone() -> None:
    sources = native_sources.sources_for(native_sources.operator_groups())
    plain, more = (objects.wanted(sources, ["x86-64-v4", *others]) for others in ([], ["x86-64-v4-bf16"]))
    added = [more[key] for key in more if key not in plain]
    assert plain.keys() < more.keys()
    assert all("-mavx512bf16" in each.flags for each in added)
    assert len(added) < len(plain) / 10
