"""Steps and checkpoints of the recipe "trainer" in processes that are killed: what remains is checked after each."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from typing import Any

import numpy as np

import aotpack

SEED = 3


def main(archive: str, checkpoint: str, rounds: int) -> None:
    """Prints the number of the last step that was saved, and of those kills that came within a process's work."""
    model = aotpack.load(archive)
    x = np.ones(1, np.float32)
    context = model.context(num_threads=1, seed=SEED)
    context.save_state(checkpoint)
    # The uninterrupted run, as far as it was needed yet: state and result after each step.
    reference = model.context(num_threads=1, seed=SEED)
    expected: list[tuple[bytes, bytes | None]] = [(_state(reference), None)]

    def expect(step: int) -> tuple[bytes, bytes | None]:
        while len(expected) <= step:
            loss = bytes(np.asarray(reference(x)))
            expected.append((_state(reference), loss))
        return expected[step]

    numbers = random.Random(1)
    step = progressed = 0
    for _ in range(rounds):
        pid = os.fork()
        if pid == 0:
            resumed = model.context(num_threads=1)
            resumed.load_state(checkpoint)
            while True:
                resumed(x)
                resumed.save_state(checkpoint)
        time.sleep(numbers.uniform(0.0, 0.03))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        resumed = model.context(num_threads=1)
        resumed.load_state(checkpoint)
        before, step = step, int(np.asarray(resumed.state()["steps"])[0])
        assert step >= before, "the checkpoint is older than one that was there before"
        progressed += step > before
        assert _state(resumed) == expect(step)[0]
        assert bytes(np.asarray(resumed(x))) == expect(step + 1)[1]
        assert _state(resumed) == expect(step + 1)[0]
    print(step, progressed)


def _state(context: Any) -> bytes:
    return b"".join(bytes(np.asarray(value)) for value in context.state().values())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
