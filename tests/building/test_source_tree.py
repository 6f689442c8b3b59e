"""Sources of modules as a folder: where files are, which headers come along, and what CMake gets."""

from __future__ import annotations

from pathlib import Path

from aotpack.building import native_sources
from aotpack.building.cmake_text import CMakeModule, CMakeObject, cmake_text
from aotpack.building.includes import include_folders_of, included_headers
from aotpack.building.module_sources import ModuleSources, SourceUnit
from aotpack.building.source_tree import source_tree


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_headers_of_headers(tmp_path: Path) -> None:
    a = write(tmp_path / "one" / "a.h", '#pragma once\n  #  include "b.h"\n#include <deep/c.h>\n#include <vector>\n')
    b = write(tmp_path / "one" / "b.h", '#include "a.h"\n// #include "no.h"\n')
    c = write(tmp_path / "two" / "deep" / "c.h", "#if 0\n#include <deep/d.h>\n#endif\n")
    d = write(tmp_path / "two" / "deep" / "d.h", "")
    write(tmp_path / "one" / "no.h", "")
    write(tmp_path / "two" / "b.h", "")
    folders = [tmp_path / "one", tmp_path / "two"]
    assert included_headers([("#include <a.h>\n", None)], folders) == {a, b, c, d}
    beside = write(tmp_path / "src" / "b.h", "")
    assert included_headers([('#include "b.h"\n', tmp_path / "src")], folders) == {beside}
    assert included_headers([("#include <b.h>\n", tmp_path / "src")], folders) == {b} | {a, c, d}


def test_folders_in_flags() -> None:
    flags = ["-I", "a", "-O2", "-Ib", "-isystem", "c", "-DI=x"]
    assert include_folders_of(flags) == (Path("a"), Path("b"), Path("c"))


def test_tree(tmp_path: Path) -> None:
    """Sources of aotpack and of the user, with their headers; flags name them in the tree."""
    root = native_sources.source_root()
    text = '#include "k.h"\n#include "../common.h"\n#include <lib/l.h>\n'
    kernel = write(tmp_path / "user" / "kernels" / "k.cpp", text)
    write(tmp_path / "user" / "kernels" / "k.h", "// k")
    write(tmp_path / "user" / "common.h", "// common")
    write(tmp_path / "elsewhere" / "lib" / "l.h", "// l")
    (tmp_path / "unused").mkdir()
    given = write(tmp_path / "object.o", "object")
    folders = (str(tmp_path / "elsewhere"), str(tmp_path / "unused"))
    flags = ("-O2", "-I", str(root / "include"), "-I", folders[0], f"-I{folders[1]}", "-ffile-prefix-map=/x=y")
    unit = SourceUnit("k.cpp", flags, text=f'#include "aotpack/operator.h"\n#include "{kernel}"\n')
    own = SourceUnit("copy.cpp", ("-O3", "-I", str(root / "module")), path=root / "module" / "copy.cpp")
    module = ModuleSources((unit, own), ("-shared", "-s", "-lm"), (given,), texts={"program.txt": "text"})
    other = ModuleSources((SourceUnit("k.cpp", flags, text="int y;\n"), own), ("-shared", "-lm"))
    files = source_tree("net", {"modules/x86-64-v3/forward.so": module, "modules/x86-64-v3/other.so": other})
    assert {path for path in files if path.startswith(("custom/", "src/"))} == {
        "custom/common.h",
        "custom/kernels/k.cpp",
        "custom/kernels/k.h",
        "custom/elsewhere/lib/l.h",
        "custom/objects/object.o",
        "src/x86-64-v3/forward/k.cpp",
        "src/x86-64-v3/forward/program.txt",
        "src/x86-64-v3/other/k.cpp",
    }
    assert b'#include "custom/kernels/k.cpp"' in files["src/x86-64-v3/forward/k.cpp"]
    assert files["aotpack/module/copy.cpp"] == (root / "module" / "copy.cpp").read_bytes()
    assert "aotpack/include/aotpack/operator.h" in files
    assert not any(str(tmp_path).encode() in content for content in files.values())
    text = files["CMakeLists.txt"].decode()
    assert '"SHELL:-I ${ROOT}/custom/elsewhere"' in text
    assert "unused" not in text
    # Both modules link the same object.
    assert text.count("aotpack/module/copy.cpp") == 1
    assert text.count("$<TARGET_OBJECTS:object1>") == 2
    assert '"${ROOT}/custom/objects/object.o"\n  "-lm"' in text


def test_different_files_of_one_name(tmp_path: Path) -> None:
    objects = tuple(write(tmp_path / name / "k.o", name) for name in ("a", "b"))
    units = tuple(SourceUnit("wrapper.cpp", ("-O1",), text=f"int {name};") for name in ("a", "b"))
    files = source_tree("net", {"modules/t/forward.so": ModuleSources(units, (), objects)})
    assert {path for path in files if path.startswith("custom")} == {"custom/objects/k.o", "custom/objects/k.2.o"}
    assert {path for path in files if path.startswith("src")} == {
        "src/t/forward/wrapper.cpp",
        "src/t/forward/wrapper.2.cpp",
    }


def test_cmake_text() -> None:
    item = CMakeObject("src/a.cpp", ("-I", "${ROOT}/x", "-I", "${ROOT}/y", '-DS="a;b"'))
    text = cmake_text("a\nmodel", [CMakeModule("modules/t/forward.stage1.so", (item,), ("-shared", "-lm"), ())])
    assert text.startswith("# Builds the modules of a model into")
    assert '"SHELL:-I ${ROOT}/x"\n  "SHELL:-I ${ROOT}/y"\n  "-DS=\\"a\\;b\\""' in text
    assert 'OUTPUT_NAME "forward.stage1.so" LIBRARY_OUTPUT_DIRECTORY "${ROOT}/modules/t"' in text
    assert '"-shared"' not in text
