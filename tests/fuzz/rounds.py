"""How long a fuzzer in Python runs: some rounds with fixed seeds, or `$FUZZ_SECONDS` with other seeds each time."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator


def rounds(name: str, count: int) -> Iterator[random.Random]:
    """A generator of random numbers per round.

    A test that fails prints its seeds; `AOTPACK_FUZZ_SEED` set to the last one repeats that round alone.
    """
    only = os.environ.get("AOTPACK_FUZZ_SEED")
    seconds = float(os.environ.get("FUZZ_SECONDS", "0"))
    base = f"{name}-{time.time_ns()}" if seconds else name
    seeds = [only] if only else None
    end = time.monotonic() + seconds
    done = 0
    while (done < len(seeds)) if seeds else (time.monotonic() < end if seconds else done < count):
        seed = seeds[done] if seeds else f"{base}-{done}"
        # Captured by pytest, and shown when the test fails.
        print(f"AOTPACK_FUZZ_SEED={seed}")
        yield random.Random(seed)
        done += 1
