"""The CMakeLists.txt that builds modules from their sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_HEAD = """\
# Builds the modules of {name} into modules/. Any compiler with C++20 and OpenMP will do; torch is not needed.
#
#   cmake -B build && cmake --build build -j$(nproc)
#
# All flags are listed here, whatever the build type. Objects are shared among the modules that link them.
cmake_minimum_required(VERSION 3.18)
project(aotpack_modules LANGUAGES CXX)
set(ROOT "${{CMAKE_CURRENT_SOURCE_DIR}}")
foreach(config DEBUG RELEASE RELWITHDEBINFO MINSIZEREL)
  set(CMAKE_CXX_FLAGS_${{config}} "")
endforeach()
"""


@dataclass(frozen=True)
class CMakeObject:
    """A source that is compiled with flags, in which `${ROOT}` is the folder."""

    source: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class CMakeModule:
    """A shared object: its path in the folder, and what it is linked from, in order."""

    path: str
    objects: tuple[CMakeObject, ...]
    link_flags: tuple[str, ...]
    given: tuple[str, ...]


def cmake_text(name: str, modules: Sequence[CMakeModule]) -> str:
    """The text of a CMakeLists.txt for these modules."""
    lines = [_HEAD.format(name=" ".join(name.split()) or "a model")]
    flags: dict[tuple[str, ...], str] = {}
    objects: dict[CMakeObject, str] = {}
    for each in (item for module in modules for item in module.objects):
        if each.flags not in flags:
            flags[each.flags] = f"flags{len(flags)}"
            lines.append(f"set({flags[each.flags]}\n{_lines(_grouped(each.flags))})\n")
        if each not in objects:
            objects[each] = f"object{len(objects)}"
            lines.append(
                f"add_library({objects[each]} OBJECT {_quoted(each.source)})\n"
                f"target_compile_options({objects[each]} PRIVATE ${{{flags[each.flags]}}})\n"
            )
    for number, module in enumerate(modules):
        folder, _, file = module.path.rpartition("/")
        target = f"module{number}"
        linked = [f"$<TARGET_OBJECTS:{objects[each]}>" for each in module.objects]
        # Libraries come last, behind what needs them.
        libraries = [*(f"${{ROOT}}/{path}" for path in module.given), *(f for f in module.link_flags if _is_library(f))]
        options = [flag for flag in module.link_flags if not _is_library(flag) and flag != "-shared"]
        if "-fopenmp" not in options:
            # csrc/module/openmp.cpp stands in for the OpenMP runtime of GCC alone.
            options.append("$<$<CXX_COMPILER_ID:Clang>:-fopenmp>")
        options.append("-Wl,--version-script=${ROOT}/exports.map")
        lines += [
            f"add_library({target} MODULE\n{_lines(linked, quoted=False)})\n",
            f'set_target_properties({target} PROPERTIES LINKER_LANGUAGE CXX NO_SONAME ON PREFIX "" SUFFIX ""\n'
            f"  OUTPUT_NAME {_quoted(file)} LIBRARY_OUTPUT_DIRECTORY {_quoted(f'${{ROOT}}/{folder}')}\n"
            "  LINK_DEPENDS ${ROOT}/exports.map)\n",
            f"target_link_options({target} PRIVATE\n{_lines(_grouped(options))})\n",
            f"target_link_libraries({target} PRIVATE\n{_lines(libraries)})\n",
        ]
    return "\n".join(lines)


def _is_library(flag: str) -> bool:
    return flag.startswith("-l")


def _grouped(flags: Sequence[str]) -> list[str]:
    """Flags with their values: CMake would leave out an `-I` that occurs twice."""
    found: list[str] = []
    rest = iter(flags)
    for flag in rest:
        found.append(f"SHELL:{flag} {next(rest)}" if flag in ("-I", "-isystem") else flag)
    return found


def _lines(items: Sequence[str], *, quoted: bool = True) -> str:
    return "\n".join(f"  {_quoted(item) if quoted else item}" for item in items)


def _quoted(text: str) -> str:
    """A quoted argument; variables are replaced in it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace(";", "\\;") + '"'
