"""The C++ compiler: finding it and running it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from aotpack.building.processes import ProcessGroup
from aotpack.building.temporary import private_folder
from aotpack.errors import CompileError
from aotpack.targets import BY_NAME

_CANDIDATES = ("g++", "clang++", "c++")

# By architecture of targets, what `uname -m` says.
_MACHINES = {"x86-64": "x86_64", "aarch64": "aarch64"}
# x86_64-linux-gnu-g++-12, say.
_GCC = re.compile(r"(?:^|-)(?:g|c)\+\+(?:-[\d.]+)?$")


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler.

    Attributes:
        path: the program.
        version: the first line of `--version`.
        arguments: what always follows the program: the compiler after a launcher (`ccache g++`), or flags of the user.
        group: where its processes run; by default in a group of their own.
    """

    path: str
    version: str
    arguments: tuple[str, ...] = ()
    group: ProcessGroup | None = field(default=None, compare=False, repr=False)

    @property
    def command(self) -> tuple[str, ...]:
        """How a command line begins."""
        return (self.path, *self.arguments)

    @property
    def identity(self) -> str:
        """What its output depends on: the version, and flags of the user. A launcher changes nothing."""
        return "\0".join([self.version, *(argument for argument in self.arguments if argument.startswith("-"))])

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version

    @property
    def can_wait(self) -> bool:
        """Whether it reads a source piece by piece: GCC itself. A launcher reads it twice."""
        program = os.path.basename(os.path.realpath(self.path))
        return _GCC.search(program) is not None and not self.is_clang and all(a.startswith("-") for a in self.arguments)

    def within(self, group: ProcessGroup) -> Compiler:
        """This compiler, with its processes in `group`."""
        return replace(self, group=group)

    def run(
        self, arguments: Sequence[str], *, cwd: str | Path, source: Callable[[], str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs it to its end in a folder, with a temporary folder of its own; `source` as `ProcessGroup.run` has it.

        Raises:
            CompileError: the group was killed.
            OSError: it cannot be started.
        """
        # A compiler that is killed leaves its temporary files.
        with private_folder() as temporary:
            environment = {"TMPDIR": str(temporary)}
            command = [*self.command, *arguments]
            return (self.group or ProcessGroup()).run(command, cwd=cwd, environment=environment, source=source)


def find_compiler(requested: str | None = None) -> Compiler:
    """The compiler: `requested`, else $CXX, else the first of g++, clang++, c++ on the path.

    The first two may be a command with arguments, such as `ccache g++`.

    Raises:
        CompileError: there is none, or it does not run.
    """
    return _find(requested or os.environ.get("CXX") or None, os.environ.get("PATH"), os.getcwd())


@lru_cache(maxsize=8)
def _find(wanted: str | None, path: str | None, folder: str) -> Compiler:
    for name in (wanted,) if wanted else _CANDIDATES:
        command = _command(name)
        if command is not None:
            return Compiler(command[0], _version(command), tuple(command[1:]))
    raise CompileError(
        f"no C++ compiler found (looked for {', '.join((wanted,) if wanted else _CANDIDATES)})",
        hint="install g++ or clang++ (Debian: apt-get install g++), or set CXX",
    )


def cross_compilers(targets: Iterable[str]) -> dict[str, Compiler]:
    """The compilers for targets that are CPUs of other architectures than this machine's, by architecture.

    Raises:
        CompileError: there is none for one of them, or it does not run.
    """
    archs = dict.fromkeys(BY_NAME[target].arch for target in targets if BY_NAME[target].backend == "cpu")
    found = {arch: find_cross_compiler(arch) for arch in archs}
    return {arch: compiler for arch, compiler in found.items() if compiler is not None}


def find_cross_compiler(arch: str) -> Compiler | None:
    """The compiler for an architecture that is not this machine's; None where it is this machine's.

    $AOTPACK_CXX_AARCH64 (for aarch64; it may be a command with arguments, such as `clang++ --target=…`), else
    aarch64-linux-gnu-g++ on the path.

    Raises:
        CompileError: there is none, or it does not run.
    """
    machine = _MACHINES[arch]
    if os.uname().machine == machine:
        return None
    variable, usual = f"AOTPACK_CXX_{machine.upper()}", f"{machine}-linux-gnu-g++"
    wanted = os.environ.get(variable) or usual
    command = _command(wanted)
    if command is None:
        raise CompileError(
            f"no C++ compiler for {arch} found (looked for {wanted})",
            hint=f"install one (Debian: apt-get install g++-{machine.replace('_', '-')}-linux-gnu), or set {variable}",
        )
    return Compiler(command[0], _version(command), tuple(command[1:]))


def _command(text: str) -> list[str] | None:
    """The words of a command with the first as an absolute path; None if there is no such program."""
    # A path may have spaces.
    candidates = [[text]]
    # ValueError: an open quote. Then it can only be a path.
    with contextlib.suppress(ValueError):
        candidates.append(shlex.split(text))
    for words in candidates:
        found = shutil.which(words[0]) if words else None
        if found is not None:
            # Compilers run in other folders.
            return [os.path.abspath(found), *words[1:]]
    return None


def _version(command: Sequence[str]) -> str:
    shown = " ".join(command)
    try:
        output = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, errors="replace", timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileError(f"the C++ compiler {shown} does not run: {error}") from error
    if not output.strip():
        raise CompileError(f"the C++ compiler {shown} does not run: --version prints nothing")
    return output.strip().splitlines()[0].strip()
