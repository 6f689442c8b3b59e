"""What a call of the tiny MLP costs the host on a GPU, from C and from Python.

    python -m bench.gpu_overhead [--target cuda-sm_90] [ARCHIVE] [-o gpu_overhead.json]

Microseconds of calls that return without waiting (`submit`) and of calls with their wait (`wait`): the fastest round
and the median one. Instructions of a call that does not wait, without those of the driver, by callgrind where valgrind
is installed and AOTPACK_LIBCUDA names a driver without a GPU (tests/support/fake_cuda); nothing is timed then.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.cli.arrays import golden_inputs

HERE = Path(__file__).resolve().parent
LIMITS = {("C", "submit"): 5.0, ("Python", "submit"): 8.0, ("C", "wait"): 10.0}
ROUNDS, BATCH, WARM = 201, 20, 64
COUNTED = (200, 1200)  # callgrind counts the difference: what happens once drops out
PER_THREAD_STREAM = 2


def build_mlp(path: Path, target: str) -> None:
    """Writes the archive."""
    from aotpack.export import aot_export, build_archive
    from bench.models import GPU_MODELS

    model, args = GPU_MODELS["mlp"].build()
    build_archive(aot_export(model.eval(), args), path, targets=[target])


def compile_driver(folder: Path) -> Path:
    """The driver in C, against the installed package."""
    spec = find_spec("aotpack.runtime._native")
    if spec is None or spec.origin is None:
        raise RuntimeError("aotpack's native library is not installed")
    package, driver = Path(spec.origin).parents[1], folder / "gpu_overhead_driver"
    flags = ["-std=c11", "-O2", "-g", "-D_POSIX_C_SOURCE=199309L", f"-I{package / 'include'}"]
    link = [f"-L{package / 'lib'}", "-laotpack", f"-Wl,-rpath,{package / 'lib'}"]
    subprocess.run(
        [os.environ.get("CC", "cc"), *flags, HERE / "gpu_overhead_driver.c", "-o", driver, *link], check=True
    )
    return driver


def from_c(driver: Path, archive: Path) -> dict[str, tuple[float, float]]:
    """Microseconds by kind of call: the best round and the median one."""
    lines = subprocess.run([driver, archive, "time"], check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: (float(best), float(median)) for name, best, median in map(str.split, lines)}


def from_python(archive: Path) -> dict[str, tuple[float, float]]:
    """The same for `context(x)`."""
    model = aotpack.load(archive, device="cuda:0")
    with ArchiveReader(archive) as reader:
        arrays = golden_inputs(reader, reader.manifest.entries[0].goldens[0])
    inputs = [model.to_device(array) for array in arrays]
    figures = {}
    for name, stream, batch in (("wait", None, 1), ("submit", PER_THREAD_STREAM, BATCH)):
        context = model.context(stream=stream)
        for _ in range(WARM):
            context(*inputs)
        rounds = []
        for _ in range(ROUNDS):
            context.synchronize()
            start = time.perf_counter()
            for _ in range(batch):
                context(*inputs)
            rounds.append(1e6 * (time.perf_counter() - start) / batch)
        figures[name] = (min(rounds), statistics.median(rounds))
    return figures


def instructions(driver: Path, archive: Path) -> float:
    """Of the runtime and the caller, in a call that does not wait."""
    counts = []
    for calls in COUNTED:
        with tempfile.NamedTemporaryFile(suffix=".callgrind") as out:
            command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}"]
            command += ["--toggle-collect=measured", str(driver), str(archive), "count", str(calls)]
            subprocess.run(command, check=True, capture_output=True)
            text = subprocess.run(
                ["callgrind_annotate", "--inclusive=yes", "--threshold=100", "--show=Ir", out.name],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        total, driver_only = 0, 0
        for count, name in re.findall(r"^\s*([\d,]+)(?: \([ \d.]+%\))?\s+(.*)$", text, re.MULTILINE):
            number = int(count.replace(",", ""))
            if "PROGRAM TOTALS" in name:
                total = number
            elif re.search(r":cu[A-Z]\w+ \[", name):
                driver_only += number
        counts.append(total - driver_only)
    return (counts[1] - counts[0]) / (COUNTED[1] - COUNTED[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_overhead", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("archive", type=Path, nargs="?")
    parser.add_argument("--target", default="cuda-sm_90")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aotpack-gpu-overhead-") as scratch:
        archive = options.archive or Path(scratch) / "mlp.aotpack"
        if options.archive is None:
            build_mlp(archive, options.target)
        driver = compile_driver(Path(scratch))
        if "AOTPACK_LIBCUDA" in os.environ:
            if shutil.which("valgrind") is None:
                parser.error("without a GPU this needs valgrind")
            print(f"{instructions(driver, archive):.0f} instructions a call, without those of the driver")
            return 0
        figures = {"C": from_c(driver, archive), "Python": from_python(archive)}
    table = Table("µs a call", title="The host's part in a call on a GPU", highlight=False)
    for heading in ("median", "fastest round", "limit"):
        table.add_column(heading, justify="right")
    rows = [(who, what, *figures[who][what]) for who in figures for what in ("submit", "wait")]
    for who, what, best, median in rows:
        limit = LIMITS.get((who, what))
        table.add_row(f"{who}, {what}", f"{median:.2f}", f"{best:.2f}", "" if limit is None else f"{limit:.0f}")
    Console(highlight=False).print(table)
    if options.output:
        options.output.write_text(json.dumps(figures, indent=1) + "\n")
    slow = [f"{who}, {what}" for who, what, _, median in rows if median > LIMITS.get((who, what), median)]
    if slow:
        print(f"above the limit: {'; '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
