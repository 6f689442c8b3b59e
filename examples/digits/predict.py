"""Classifies the held-out digits with the archive, in a process that cannot import torch.

    python examples/digits/predict.py [ARCHIVE] [--json]

With --json, one object on standard output: {"right", "total", "predictions", "start_s"}; start_s is the time from the
start of this process to the first output.
"""

import sys
import time
from importlib.abc import MetaPathFinder
from pathlib import Path


class NoTorch(MetaPathFinder):
    """Blocks the import of torch, to show that it is not needed."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.partition(".")[0] == "torch":
            raise ImportError("torch is not available in this process")


sys.meta_path.insert(0, NoTorch())

import numpy as np  # noqa: E402

import aotpack  # noqa: E402

SHOWN = 8
SHADES = " ░▒▓█"


def process_age() -> float:
    """Seconds since the kernel started this process; the kernel counts in hundredths."""
    import os

    with open("/proc/self/stat") as stat:
        # Fields after the parenthesised name, which may contain spaces; starttime is field 22 of proc(5).
        ticks = int(stat.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def art(image: np.ndarray) -> list[str]:
    """Eight lines of sixteen characters for an 8x8 image with values in [0, 1]."""
    levels = np.minimum((image * len(SHADES)).astype(int), len(SHADES) - 1)
    return ["".join(SHADES[level] * 2 for level in row) for row in levels]


def show(images: np.ndarray, predictions: np.ndarray, labels: np.ndarray) -> None:
    """Digits side by side, four to a row of the terminal, each above its prediction."""
    for first in range(0, len(images), 4):
        chosen = range(first, min(first + 4, len(images)))
        for lines in zip(*(art(images[i, 0]) for i in chosen), strict=True):
            print("   " + "   ".join(lines))
        verdicts = [
            f"-> {predictions[i]}" + ("" if predictions[i] == labels[i] else f" (is {labels[i]})") for i in chosen
        ]
        print("   " + "   ".join(verdict.center(16) for verdict in verdicts) + "\n")


def torch_can_be_imported() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def main() -> None:
    arguments = [word for word in sys.argv[1:] if word != "--json"]
    folder = Path(__file__).parent / "build"
    archive = Path(arguments[0]) if arguments else folder / "digits.aotpack"
    heldout = np.load(archive.with_name("heldout.npz"))
    images, labels = heldout["images"], heldout["labels"]

    model = aotpack.load(str(archive))
    model(images[:1])
    start = process_age()

    predictions = np.asarray(model(images)).argmax(axis=1)
    right = int((predictions == labels).sum())
    assert not torch_can_be_imported()

    if "--json" in sys.argv:
        import json

        print(json.dumps({"right": right, "total": len(labels), "predictions": predictions.tolist(), "start_s": start}))
        return
    # Show some correct predictions and all wrong ones.
    wrong = np.flatnonzero(predictions != labels)[:2]
    chosen = np.concatenate([np.flatnonzero(predictions == labels)[: SHOWN - len(wrong)], wrong])
    show(images[chosen], predictions[chosen], labels[chosen])
    print(
        f"{right} of {len(labels)} held-out digits right, without torch; first output {start * 1e3:.0f} ms after exec"
    )


if __name__ == "__main__":
    main()
