"""Fewer runs of Python's garbage collector during captures and builds.

They make millions of objects that live to their end. With Python's own threshold of 700 a tenth of their time goes into
looking for cycles among them.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# New objects between two runs over the youngest generation: some 10 MB.
_THRESHOLD = 50_000

_lock = threading.Lock()
_active = 0
_before = (0, 0, 0)


@contextmanager
def rare_collections() -> Iterator[None]:
    """While active in any thread, the collector runs rarely; not where the caller has switched it off."""
    global _active, _before
    with _lock:
        if _active == 0:
            _before = gc.get_threshold()
            if 0 < _before[0] < _THRESHOLD:
                gc.set_threshold(_THRESHOLD, *_before[1:])
        _active += 1
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if _active == 0:
                gc.set_threshold(*_before)


@contextmanager
def no_collections(*, ageing: bool = False) -> Iterator[None]:
    """While active, the collector does not run. `ageing`: for imports, whose objects stay; they are old afterwards."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if ageing and not gc.get_freeze_count():
                # The next run over young objects would look at all of them.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
