"""Archives on processors that this machine is not, by QEMU's emulation of user programs (Debian: qemu-user-static)."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import aotpack
from aotpack.building.compiler import find_compiler

_ROOT = Path(__file__).resolve().parents[3]
_SOURCE = Path(__file__).parent / "call.cpp"
# What DLPack calls kinds of numbers.
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}

X86_64 = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
AARCH64 = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
AARCH64_CXX = shutil.which("aarch64-linux-gnu-g++")


@dataclass(frozen=True)
class Emulated:
    """A processor, and the program that calls archives on it: `command` is how its command line begins."""

    command: tuple[str, ...]

    def run(self, archive: Path, folder: Path, *inputs: npt.NDArray[np.generic]) -> subprocess.CompletedProcess[str]:
        """Calls the archive; outputs are raw files in `folder`, `out0` and so on. The target is printed."""
        given = []
        for number, value in enumerate(inputs):
            path = folder / f"in{number}"
            path.write_bytes(np.ascontiguousarray(value).tobytes())
            shape = "x".join(map(str, value.shape))
            given += [str(_CODES[value.dtype.kind]), str(8 * value.dtype.itemsize), shape, str(path)]
        command = [*self.command, str(archive), str(folder / "out"), *given]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)


def old_x86_64(folder: Path, cpu: str = "Nehalem") -> Emulated:
    """A processor without AVX. The program uses the runtime of the installed package."""
    assert X86_64 is not None
    library = Path(aotpack.cmake_dir()).parents[1]
    include = _ROOT / "csrc" / "include"
    program = _compiled(folder, find_compiler().command, include, library)
    return Emulated((X86_64, "-cpu", cpu, str(program)))


def aarch64(cpu: str = "max") -> Emulated:
    """An ARM processor, by QEMU's name for it; `max` has all that QEMU emulates.

    The runtime is compiled beside the other builds of this source tree, unless it is there.
    """
    assert AARCH64 is not None
    assert AARCH64_CXX is not None
    folder = _ROOT / "build" / "aarch64"
    folder.mkdir(parents=True, exist_ok=True)
    build = folder / "runtime"
    configure = [
        *("cmake", "-S", str(_ROOT), "-B", str(build), "-DAOTPACK_BUILD_PYTHON=OFF"),
        f"-DCMAKE_TOOLCHAIN_FILE={_ROOT / 'cmake' / 'aarch64-linux-gnu.cmake'}",
        f"-DCMAKE_INSTALL_PREFIX={folder / 'installed'}",
    ]
    for command in (configure, ["cmake", "--build", str(build), "-j2"], ["cmake", "--install", str(build)]):
        subprocess.run(command, check=True, capture_output=True, timeout=1800)
    program = _compiled(folder, (AARCH64_CXX,), folder / "installed" / "include", folder / "installed" / "lib")
    return Emulated((AARCH64, "-cpu", cpu, "-L", "/usr/aarch64-linux-gnu", str(program)))


def _compiled(folder: Path, compiler: tuple[str, ...], include: Path, library: Path) -> Path:
    program = folder / "call"
    command = [*compiler, "-std=c++20", "-O1", str(_SOURCE), "-I", str(include), "-L", str(library), "-laotpack"]
    subprocess.run([*command, f"-Wl,-rpath,{library}", "-o", str(program)], check=True, timeout=300)
    return program
