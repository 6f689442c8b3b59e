"""Writes scikit-learn's digits as the program reads them: python examples/train_cpp/data.py FOLDER"""

import sys
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16, labels, test_size=450, random_state=0, stratify=labels)
    for name, pixels, digits in (("train", parts[0], parts[2]), ("heldout", parts[1], parts[3])):
        pixels.astype("<f4").tofile(folder / f"{name}.f32")
        digits.astype("<i8").tofile(folder / f"{name}.i64")
    print(f"{len(parts[0])} digits to train with and {len(parts[1])} to test with, in {folder}")


if __name__ == "__main__":
    main()
