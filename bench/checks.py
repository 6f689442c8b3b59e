"""What the checks of a call cost: ten inputs of rank four, in a process of C++ alone.

    python -m bench.checks [-o checks.json]

Nanoseconds to check and bind the ten inputs, and of a whole call of a module that does nothing; instructions of the
former by callgrind, where valgrind is installed. Sizes differ from call to call where dims are dynamic.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from aotpack.archive import Entry, FileSource, Implementation, Manifest, Module, Variant, write_archive
from aotpack.building.native_sources import module_abi_version
from aotpack.spec import CallSpec, Check, Dim, DimRef, DType, ShapeElement, TensorLeaf, TensorSpec

ROOT = Path(__file__).resolve().parents[1]
INPUTS = 10
COUNTED = (200, 1200)  # callgrind counts the difference: what happens once drops out
LIMIT_NS = 200.0
LETTERS = "abcd"
CHECKS = (
    Check("a*b <= 4096", ("$a", "$b", "*", 4096, "<=")),
    Check("a*b % 2 == 0", ("$a", "$b", "*", 2, "%", 0, "==")),
    Check("a <= c + d", ("$a", "$c", "$d", "+", "<=")),
)
CASES = {
    "static": "all sizes static",
    "shared": "4 dims, shared by all inputs",
    "own": "40 dims, each of its own",
    "relations": "4 shared dims and 3 relations to check",
}


def dims_of(case: str, index: int) -> list[str]:
    """The names of the four dims of an input; none where sizes are static."""
    if case == "static":
        return []
    return [letter if case != "own" else f"{letter}{index}" for letter in LETTERS]


def archive(case: str, module: bytes, path: Path) -> None:
    """Writes the archive of a case."""
    inputs = []
    names: dict[str, None] = {}
    for index in range(INPUTS):
        dims = dims_of(case, index)
        names.update(dict.fromkeys(dims))
        shape: tuple[ShapeElement, ...] = tuple(DimRef(name) for name in dims) or (2, 4, 6, 8)
        inputs.append(TensorSpec(f"x{index}", DType.FLOAT32, shape, (0, 1, 2, 3)))
    outputs = (TensorSpec("output", DType.FLOAT32, (0,), (0,)),)
    source = FileSource.from_bytes("modules/x86-64/forward", module)
    implementation = Implementation.of_module(Module("x86-64", module_abi_version(), 0, (), ()), INPUTS, len(outputs))
    entry = Entry(
        name="forward",
        dims=tuple(Dim(name, 1, 64) for name in names),
        inputs=tuple(inputs),
        outputs=outputs,
        in_spec=CallSpec(tuple(TensorLeaf(i) for i in range(INPUTS)), (None,) * INPUTS),
        out_spec=TensorLeaf(0),
        variants=(Variant("default", (), (implementation,), CHECKS if case == "relations" else ()),),
    )
    write_archive(path, Manifest("checks", {}, (), (entry,)), [source])


def build() -> Path:
    """Builds the driver and the module, in release mode; returns their folder."""
    folder = ROOT / "build" / "checks"
    options = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DAOTPACK_BUILD_BENCH=ON"]
    commands = [
        ["cmake", "-S", str(ROOT), "-B", str(folder), *options],
        ["cmake", "--build", str(folder), "--target", "aotpack_checks", "aotpack_checks_module"],
    ]
    for command in commands:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "bench"


def measure(driver: Path, path: Path) -> dict[str, float]:
    """Nanoseconds, by what was measured: the best round and the median one."""
    lines = subprocess.run([driver, path, "time"], check=True, capture_output=True, text=True).stdout.splitlines()
    figures = {}
    for line in lines:
        name, best, median = line.split()
        figures |= {f"{name}_ns": float(median), f"{name}_best_ns": float(best)}
    return figures


def instructions(driver: Path, path: Path) -> float | None:
    """Instructions of checking and binding once; None without valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return None
    counts = []
    for calls in COUNTED:
        command = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=checks_bind"]
        done = subprocess.run([*command, driver, path, "count", str(calls)], check=True, capture_output=True, text=True)
        found = re.search(r"Collected : (\d+)", done.stderr)
        if found is None:
            raise RuntimeError(f"callgrind counted nothing:\n{done.stderr}")
        counts.append(int(found[1]))
    return (counts[1] - counts[0]) / (COUNTED[1] - COUNTED[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.checks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    folder = build()
    figures: dict[str, dict[str, float | None]] = {}
    with tempfile.TemporaryDirectory(prefix="aotpack-checks-") as scratch:
        for case in CASES:
            path = Path(scratch) / f"{case}.aotpack"
            archive(case, (folder / "aotpack_checks_module.so").read_bytes(), path)
            driver = folder / "aotpack_checks"
            figures[case] = {**measure(driver, path), "instructions": instructions(driver, path)}
    table = Table("ten inputs of rank four", title="The checks of a call", highlight=False)
    for heading in ("checks, ns", "fastest round", "instructions", "whole call, ns"):
        table.add_column(heading, justify="right")
    for case, row in figures.items():
        count = row["instructions"]
        shown = "" if count is None else f"{count:.0f}"
        table.add_row(
            CASES[case], f"{row['checks_ns']:.0f}", f"{row['checks_best_ns']:.0f}", shown, f"{row['call_ns']:.0f}"
        )
    Console(highlight=False).print(table)
    if options.output:
        options.output.write_text(json.dumps(figures, indent=1) + "\n")
    slow = [CASES[case] for case, row in figures.items() if (row["checks_best_ns"] or 0.0) > LIMIT_NS]
    if slow:
        print(f"above {LIMIT_NS:.0f} ns: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
