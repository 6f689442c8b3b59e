"""Kernels that Triton has compiled stay in the build cache: other builds find them there.

Triton's key of a kernel is a hash of its source and of the functions that it calls, the GPU, the options, and Triton.
What this package changes in Triton is part of the key here.

Private interfaces touched (triton 3.6 and 3.7):
  triton.runtime.cache.FileCacheManager   a kernel's files below TRITON_CACHE_DIR; `put_group` ends a compilation
  triton.knobs.cache.{scope, manager_class}
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aotpack.building.cache import BuildCache, digest_of

_SUFFIX = ".triton.json"


@contextlib.contextmanager
def kernels_kept(cache: BuildCache) -> Iterator[None]:
    """While active, Triton looks for compiled kernels in the cache, and leaves them there."""
    try:
        from triton import knobs
        from triton.runtime.cache import FileCacheManager
    except ImportError:
        # Builds for GPUs fail elsewhere, with a hint.
        yield
        return

    class Manager(FileCacheManager):  # type: ignore[misc]
        """The files of one kernel."""

        def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
            super().__init__(key, override, dump)
            self._key = None if override or dump else digest_of(("kernel of Triton 1", _changes(), key))
            if self._key is not None and not os.listdir(self.cache_dir):
                kept = cache.read(self._key, _SUFFIX)
                if kept is not None:
                    self._unpack(json.loads(kept))

        def _unpack(self, kept: Mapping[str, Any]) -> None:
            files = {name: base64.b64decode(text) for name, text in kept["files"].items()}
            super().put_group(kept["name"], {name: self.put(content, name) for name, content in files.items()})

        def put_group(self, filename: str, group: Mapping[str, str]) -> Any:
            path = super().put_group(filename, group)
            if self._key is not None:
                files = {name: base64.b64encode(Path(file).read_bytes()).decode() for name, file in group.items()}
                text = json.dumps({"name": filename, "files": files})
                cache.aside(self._key, _SUFFIX, lambda temporary: _write(temporary, text))
            return path

    with knobs.cache.scope():
        knobs.cache.manager_class = Manager
        yield


def _write(path: Path, text: str) -> None:
    path.write_text(text)


@functools.cache
def _changes() -> str:
    """A hash of what this package changes in Triton."""
    return digest_of(path.read_text() for path in sorted(Path(__file__).parent.glob("*.py")))
