"""Runs the detector's archive without torch: `python examples/custom_op/detect.py detections.aotpack --boxes 5000`."""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

import aotpack


def candidates(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random detector outputs: boxes [count, 4] (center, size) in clusters, and class logits [count, 5]."""
    generator = np.random.default_rng(seed)
    objects = generator.uniform(0, 500, (max(1, count // 40), 2))
    centers = objects[generator.integers(0, len(objects), count)] + generator.normal(0, 3, (count, 2))
    boxes = np.concatenate([centers, generator.uniform(30, 50, (count, 2))], 1).astype(np.float32)
    return boxes, generator.normal(0, 2, (count, 5)).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive")
    parser.add_argument("--boxes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    model = aotpack.load(options.archive)
    boxes, logits = candidates(options.boxes, options.seed)
    began = time.perf_counter()
    found = model(boxes, logits)
    milliseconds = (time.perf_counter() - began) * 1e3
    print(f"{len(found['scores'])} of {options.boxes} boxes stay, in {milliseconds:.1f} ms")
    for box, score, kind in list(zip(found["boxes"], found["scores"], found["classes"], strict=True))[:5]:
        corners = ", ".join(f"{corner:6.1f}" for corner in box)
        print(f"  class {kind}  score {score:.3f}  at [{corners}]")
    assert "torch" not in sys.modules


if __name__ == "__main__":
    main()
