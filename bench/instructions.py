"""Counts the instructions of a call of our kernels for targets of 64-bit ARM, under QEMU, and of functions of 1024
numbers: by vectors as generated loops have them, and by libm's functions for each number.

    python -m bench.instructions                        # aarch64-bf16 and aarch64-sve256

What a program executes with two calls less what it executes with one. It says nothing of how long they take.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aotpack.building.compiler import Compiler, find_compiler, find_cross_compiler
from aotpack.building.flags import library_flags
from aotpack.building.native_sources import closure

SOURCE = Path(__file__).parent / "kernels" / "instructions.cpp"
FUNCTIONS = ("exp", "tanh", "erf")
CALLS = (
    *("linear", "gemm", "conv", "attention", "layer_norm"),
    *(name for function in FUNCTIONS for name in (function, f"{function}_by_libm")),
)
QEMU = ("qemu-aarch64-static", "-cpu", "max,sve256=on")


def compiled(target: str, compiler: Compiler, folder: Path) -> Path:
    """The program for a target, with kernels for fp32 alone."""

    def compile_one(source: Path) -> str:
        made = folder / f"{target}-{source.stem}.o"
        flags = library_flags(target, halves=frozenset(), source=source)
        subprocess.run([*compiler.command, *flags, "-c", str(source), "-o", str(made)], check=True)
        return str(made)

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, closure([SOURCE])))
    program = folder / target
    subprocess.run([*compiler.command, "-static", "-fopenmp", *objects, "-w", "-o", str(program)], check=True)
    return program


def executed(program: Path, name: str, calls: int) -> int:
    """Instructions of the program: a line of QEMU's log for each."""
    command = [*QEMU, "-singlestep", "-d", "exec,nochain", "-D", "/dev/stdout", str(program), name, str(calls)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        count = sum(line.startswith(b"Trace") for line in process.stdout)
    if process.returncode != 0:
        raise SystemExit(f"{program.name} {name} ends with {process.returncode}")
    return count


def main() -> None:
    """Prints a row of a table for each call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=["aarch64-bf16", "aarch64-sve256"])
    targets = parser.parse_args().targets
    compiler = find_cross_compiler("aarch64") or find_compiler()
    with tempfile.TemporaryDirectory() as folder:
        programs = [compiled(target, compiler, Path(folder)) for target in targets]
        print(f"| call | {' | '.join(targets)} |\n|---|{'---|' * len(targets)}")
        for name in CALLS:
            counts = [executed(program, name, 2) - executed(program, name, 1) for program in programs]
            print(f"| {name} | {' | '.join(map(str, counts))} |", flush=True)


if __name__ == "__main__":
    main()
