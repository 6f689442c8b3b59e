"""`aotpack doctor`: checks whether this machine can run and build archives."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import typer

from aotpack.cli.common import AsJson, reports_errors

if TYPE_CHECKING:
    from aotpack.building.compiler import Compiler
    from aotpack.targets import TargetInfo

# The torch versions that `aotpack.export` is tested with: from the first up to, but not including, the second.
_TORCH = ((2, 11), (2, 14))

_PROBE = """
#include <omp.h>
#include <concepts>
template <std::integral T> int f(T t) { return static_cast<int>(t) + omp_get_max_threads(); }
int main() { return f(1) == 0; }
"""


_COMPILER_HINT = "install g++ (Debian: apt-get install g++) or clang++, or set CXX"


@dataclass(frozen=True)
class Check:
    """`status` is ok, warning (archives run, but builds or GPUs do not work) or failure (archives do not run)."""

    name: str
    status: str
    detail: str
    hint: str | None = None


@reports_errors
def doctor(as_json: AsJson = False) -> None:
    """Checks whether this machine can run and build archives.

    **Examples**

        aotpack doctor
        aotpack doctor --json

    The exit code is 1 if archives cannot run on this machine. Missing requirements for building
    are warnings. A machine without a CUDA driver is supported; a driver that cannot be used is a warning.
    """
    from aotpack.cli.common import print_json, stdout_console

    checks: list[Check] = []
    for check in (_runtime, _host, _gpus, _libraries, _compiler, _torch, _extras, _cache):
        checks += check()
    failed = any(check.status == "failure" for check in checks)
    if as_json:
        print_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        console = stdout_console()
        marks = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failure": ("✗", "red")}
        for item in checks:
            mark, style = marks[item.status]
            console.print(mark, style=style, end=" ")
            console.print(f"{item.name:<10}{item.detail}", soft_wrap=True)
            if item.hint:
                console.print(f"            hint: {item.hint}", style="cyan", soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _runtime() -> list[Check]:
    from aotpack._version import __version__

    try:
        from aotpack.runtime import _native
    except ImportError as error:
        return [
            Check(
                "runtime",
                "failure",
                f"the native module cannot be loaded: {error}",
                "pip install --force-reinstall aotpack",
            )
        ]
    detail = f"aotpack {__version__}, library {_native.version()}, C ABI {_native.abi_version()}"
    return [Check("runtime", "ok", detail)]


def _host() -> list[Check]:
    from aotpack.errors import UnsupportedTargetError
    from aotpack.targets import Target

    try:
        target = Target.host()
    except UnsupportedTargetError as error:
        return [Check("host", "failure", str(error))]
    runs = [name for name in Target.known() if Target(name).runs_on(target)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [Check("host", "ok", f"{target}, {cores} cores; runs modules for {', '.join(runs)}")]


def _gpus() -> list[Check]:
    from aotpack.cli.common import format_bytes
    from aotpack.cli.gpus import NoDriverError, find_gpus, version_text
    from aotpack.errors import DeviceError

    try:
        version, gpus = find_gpus()
    except NoDriverError as error:
        return [Check("gpu", "ok", f"none: {error}")]
    except DeviceError as error:
        return [Check("gpu", "warning", f"none: {error}", error.hint)]
    listed = (
        f"cuda:{number} {gpu.name} (compute capability {gpu.capability[0]}.{gpu.capability[1]}, "
        f"{format_bytes(gpu.memory)})"
        for number, gpu in enumerate(gpus)
    )
    return [Check("gpu", "ok", f"driver for CUDA {version_text(version)}; {', '.join(listed)}")]


def _libraries() -> list[Check]:
    from aotpack.cli.gpus import find_gpus
    from aotpack.cli.libraries import find_libraries
    from aotpack.errors import DeviceError

    try:
        find_gpus()
    except DeviceError:
        # Nothing uses them.
        return []
    found = find_libraries()
    text = ", ".join(library.describe() for library in found) or "none"
    return [Check("providers", "ok", f"{text} (for archives that are built with --provider)")]


def _compiler() -> list[Check]:
    from aotpack.building.compiler import find_compiler
    from aotpack.errors import CompileError
    from aotpack.targets import TABLE

    try:
        found = find_compiler()
    except CompileError as error:
        return [Check("compiler", "warning", str(error), _COMPILER_HINT)]
    path = " ".join(found.command)
    targets = [info.name for info in TABLE if info.buildable and _compiles(_command_for(info, found), _flags_of(info))]
    if not targets:
        return [Check("compiler", "warning", f"{path} cannot compile C++20 with OpenMP", _COMPILER_HINT)]
    return [Check("compiler", "ok", f"{path} ({found.version}); targets {', '.join(targets)}")]


def _command_for(info: TargetInfo, host: Compiler) -> tuple[str, ...]:
    """How the compiler for a target is called; empty if there is none."""
    from aotpack.building.compiler import cross_compilers
    from aotpack.errors import CompileError

    try:
        return cross_compilers([info.name]).get(info.arch, host).command
    except CompileError:
        return ()


def _flags_of(info: TargetInfo) -> tuple[str, ...]:
    return (*info.march, *(flag for extension in info.extensions for flag in extension.flags))


def _compiles(compiler: tuple[str, ...], march: tuple[str, ...]) -> bool:
    import subprocess

    if not compiler:
        return False
    command = [*compiler, "-std=c++20", "-fopenmp", *march, "-x", "c++", "-", "-c", "-o", os.devnull]
    try:
        return subprocess.run(command, input=_PROBE, capture_output=True, text=True, timeout=60).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _version(package: str) -> str | None:
    """Of an installed distribution, without importing it."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _torch() -> list[Check]:
    import re

    low, high = (".".join(map(str, version)) for version in _TORCH)
    version = _version("torch")
    if version is None:
        return [Check("torch", "warning", "not installed; required only for building", "pip install 'aotpack[build]'")]
    match = re.match(r"(\d+)\.(\d+)", version)
    if match and _TORCH[0] <= (int(match[1]), int(match[2])) < _TORCH[1]:
        return [Check("torch", "ok", version)]
    return [
        Check(
            "torch",
            "warning",
            f"{version}; builds are tested with {low} up to, but not including, {high}",
            f"pip install 'torch>={low},<{high}'",
        )
    ]


def _extras() -> list[Check]:
    found = {name: _version(name) for name in ("numpy", "sympy", "triton", "onnx")}
    text = ", ".join(f"{name} {version}" if version else f"{name} missing" for name, version in found.items())
    # triton is for GPU targets and onnx for .onnx sources; the others are required.
    missing = [name for name in ("numpy", "sympy") if found[name] is None]
    if missing:
        return [Check("packages", "warning", text, f"pip install {' '.join(missing)}")]
    return [Check("packages", "ok", text)]


def _cache() -> list[Check]:
    from aotpack.building.folders import default_folder
    from aotpack.building.usage import entries, leftovers
    from aotpack.cli.common import format_bytes

    folder = default_folder()
    hint = "set AOTPACK_CACHE_DIR to a writable directory"
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return [Check("cache", "warning", f"{folder} is not writable", hint)]
    if existing != folder:
        return [Check("cache", "ok", f"{folder} (not created yet)")]
    listed = [*entries(folder), *leftovers(folder)]
    size = format_bytes(sum(entry.size for entry in listed))
    return [Check("cache", "ok", f"{folder}: {len(listed)} files, {size}")]
