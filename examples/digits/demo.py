"""`make demo`: train, build, and run the held-out digits through the archive without torch, from Python and from C++.

Ends with status 1 when the archive's answers differ from eager's anywhere along the way.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import aotpack

HERE = Path(__file__).resolve().parent
CPP = HERE.parent / "cpp"
FOLDER = Path(os.environ.get("DIGITS_DIR") or HERE / "build")
ARCHIVE = FOLDER / "digits.aotpack"

console = Console(highlight=False)


def run(*command: str | Path, capture: bool = False) -> str:
    """Runs a command and shows or returns its standard output. Exits if the command fails."""
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        env={**os.environ, "DIGITS_DIR": str(FOLDER)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if capture else None,
        text=True,
    )
    if done.returncode:
        sys.exit(f"demo: {' '.join(str(word) for word in command)} failed with {done.returncode}")
    return done.stdout or ""


def step(title: str) -> None:
    console.rule(f"[bold]{title}", align="left")


def build_cpp_example() -> Path:
    """Configures and compiles examples/cpp against the installed runtime; returns the program."""
    folder = FOLDER / "cpp"
    options = [f"-Daotpack_DIR={aotpack.cmake_dir()}", "-DCMAKE_BUILD_TYPE=Release"]
    run("cmake", "-S", CPP, "-B", folder, *options, capture=True)
    run("cmake", "--build", folder, capture=True)
    return folder / "terse"


def classify_cpp(program: Path, images: Path) -> tuple[list[int], float]:
    """The C++ program's predictions for the digits in `images`, and the duration of the process in seconds."""
    began = time.perf_counter()
    output = run(program, ARCHIVE, images, capture=True)
    seconds = time.perf_counter() - began
    return [int(line) for line in output.split()], seconds


def main() -> None:
    began = time.perf_counter()
    step("1  Train a small CNN on scikit-learn's handwritten digits (torch)")
    run(sys.executable, HERE / "train.py")

    step("2  Build the archive: aotpack build examples/digits/model.py")
    run(sys.executable, "-m", "aotpack.cli.app", "build", HERE / "model.py", "-o", ARCHIVE)

    step("3  Run it from Python, in a fresh process that cannot import torch")
    run(sys.executable, HERE / "predict.py", ARCHIVE)
    python = json.loads(run(sys.executable, HERE / "predict.py", ARCHIVE, "--json", capture=True))

    step("4  Run it from C++")
    program = build_cpp_example()
    heldout = np.load(FOLDER / "heldout.npz")
    labels = heldout["labels"]
    one = FOLDER / "one.f32"
    heldout["images"][:1].astype("<f4").tofile(one)
    cpp_first = min(classify_cpp(program, one)[1] for _ in range(3))
    cpp, _ = classify_cpp(program, FOLDER / "heldout.f32")
    console.print(f"{program.relative_to(FOLDER)} classified {len(cpp)} digits")

    step("Side by side")
    eager = heldout["eager"].argmax(axis=1).tolist()
    answers = {"eager PyTorch": eager, "archive, Python": python["predictions"], "archive, C++": cpp}
    starts = {"archive, Python": python["start_s"], "archive, C++": cpp_first}
    table = Table("", "right", "accuracy", "start of the process to first output")
    for name, predictions in answers.items():
        right = int((np.array(predictions) == labels).sum()) if len(predictions) == len(labels) else 0
        start = f"{starts[name] * 1e3:.0f} ms" if name in starts else ""
        table.add_row(name, f"{right}/{len(labels)}", f"{right / len(labels):.2%}", start)
    console.print(table)
    console.print(f"archive: {ARCHIVE.stat().st_size / 1e3:.0f} kB; demo took {time.perf_counter() - began:.0f} s")
    if not all(predictions == eager for predictions in answers.values()):
        sys.exit("demo: the archive's predictions differ from eager's")


if __name__ == "__main__":
    main()
