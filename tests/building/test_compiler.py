"""Finding the C++ compiler, and its flags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotpack.building import compiler as compilers
from aotpack.building import native_sources
from aotpack.building.compiler import cross_compilers
from aotpack.errors import CompileError
from aotpack.export.backends.cpu import toolchain
from aotpack.targets import Target

ARM = {
    "aarch64": "armv8-a",
    "aarch64-dotprod": "armv8.2-a+dotprod",
    "aarch64-bf16": "armv8.2-a+dotprod+i8mm",
    "aarch64-sve256": "armv8.2-a+dotprod+i8mm+bf16+sve",
}


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that is the whole PATH; compilers found in it are forgotten afterwards."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    compilers._find.cache_clear()
    yield tmp_path
    compilers._find.cache_clear()


def program(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


class TestCompiler:
    def test_none(self, bin_folder: Path) -> None:
        with pytest.raises(CompileError, match=r"looked for g\+\+, clang\+\+, c\+\+") as caught:
            toolchain.find_compiler()
        assert "apt-get install" in str(caught.value.hint)

    def test_the_first_of_those_there_are(self, bin_folder: Path) -> None:
        program(bin_folder / "c++", "echo some compiler 1.0")
        assert toolchain.find_compiler().version == "some compiler 1.0"
        compilers._find.cache_clear()
        clang = program(bin_folder / "clang++", "echo clang version 17; echo Target: here")
        found = toolchain.find_compiler()
        assert (found.path, found.version, found.is_clang) == (str(clang), "clang version 17", True)

    def test_the_users_choice_is_not_replaced(self, bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program(bin_folder / "g++", "echo g++ 12")
        monkeypatch.setenv("CXX", "absent++")
        with pytest.raises(CompileError, match=r"looked for absent\+\+"):
            toolchain.find_compiler()
        assert toolchain.find_compiler("g++").version == "g++ 12"

    @pytest.mark.parametrize(
        "body", ["exit 3", "kill -9 $$", pytest.param("exit 0", id="says nothing")], ids=lambda body: str(body)
    )
    def test_one_that_does_not_run(self, bin_folder: Path, body: str) -> None:
        program(bin_folder / "g++", body)
        with pytest.raises(CompileError, match=r"g\+\+ does not run"):
            toolchain.find_compiler()

    @pytest.mark.parametrize("target", ["x86-64-v4-bf16", "x86-64-v4-amx"])
    def test_only_what_asks_for_more_than_the_level_is_compiled_with_it(self, target: str) -> None:
        folder = native_sources.source_root() / "kernels"
        linear, copy = folder / "linear_bf16.cpp", native_sources.module_folder() / "copy.cpp"
        level = toolchain.library_flags("x86-64-v4", halves=frozenset(["bf16"]), source=linear)
        assert "-mavx512bf16" in toolchain.library_flags(target, halves=frozenset(["bf16"]), source=linear)
        for halves, source in ((frozenset[str](), linear), (frozenset(["bf16"]), copy)):
            plain = toolchain.library_flags("x86-64-v4", halves=halves, source=source)
            assert toolchain.library_flags(target, halves=halves, source=source) == plain
        assert not any(flag.startswith(("-mavx512", "-mamx")) for flag in level)

    def test_targets(self) -> None:
        for target in toolchain.compile_targets():
            level = ARM.get(target) or re.sub("-(bf16|amx)$", "", target)
            assert f"-march={level}" in toolchain.target_flags(target)
        with pytest.raises(CompileError, match="cannot compile for the target 'z80'") as caught:
            toolchain.target_flags("z80")
        assert "x86-64-v3" in str(caught.value.hint)

    def test_other_architectures(self, bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other = "aarch64" if Target.host().arch == "x86-64" else "x86-64-v3"
        machine = "aarch64" if other == "aarch64" else "x86_64"
        variable = f"AOTPACK_CXX_{machine.upper()}"
        monkeypatch.delenv(variable, raising=False)
        with pytest.raises(CompileError, match=f"looked for {machine}-linux-gnu-g") as caught:
            cross_compilers([Target.host().name, other])
        assert variable in str(caught.value.hint)
        program(bin_folder / f"{machine}-linux-gnu-g++", "echo cross 1")
        (found,) = cross_compilers([Target.host().name, other]).values()
        assert found.version == "cross 1"
        monkeypatch.setenv(variable, str(program(bin_folder / "mine", "echo mine 2")) + " --target=some")
        (found,) = cross_compilers([other]).values()
        assert (found.version, found.arguments) == ("mine 2", ("--target=some",))
        assert not cross_compilers([Target.host().name])

    def test_a_launcher_before_the_compiler(self, bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        launcher = program(bin_folder / "ccache", 'exec "$@"')
        program(bin_folder / "g++", "echo g++ 12")
        monkeypatch.setenv("CXX", "ccache g++ -m64")
        found = toolchain.find_compiler()
        assert found.command == (str(launcher), "g++", "-m64")
        assert found.version == "g++ 12"
        plain = toolchain.find_compiler("g++")
        assert toolchain.find_compiler("ccache g++").identity == plain.identity, "a launcher changes no object"
        assert found.identity != plain.identity, "a flag may"

    def test_paths_with_spaces_and_open_quotes(self, bin_folder: Path) -> None:
        (bin_folder / "a folder").mkdir()
        path = program(bin_folder / "a folder" / "g++", "echo g++ 12")
        assert toolchain.find_compiler(str(path)).command == (str(path),)
        with pytest.raises(CompileError, match="no C"):
            toolchain.find_compiler("g++ 'open")

    def test_relative_paths_and_changes_of_cxx(self, bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program(bin_folder / "one", "echo one 1")
        program(bin_folder / "two", "echo two 2")
        monkeypatch.chdir(bin_folder)
        for name in ("./one", "./two"):
            monkeypatch.setenv("CXX", name)
            found = toolchain.find_compiler()
            assert (found.path, found.version[:3]) == (str(bin_folder / name[2:]), name[2:])
