"""A cache folder of TorchInductor's that belongs to one code generation.

TorchInductor leaves files in `/tmp/torchinductor_USER`, a predictable name, and loads shared objects from there (its
probes of instruction sets). So it gets a private folder, removed at the end.

Private interfaces touched (torch 2.11 to 2.13):
  the environment variables TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR, read whenever torch asks for its folder
  (torch._inductor.runtime.cache_dir_utils.cache_dir)
  torch._inductor.utils.clear_caches      forgets results that name files in the folder
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from aotpack.building.temporary import private_folder

_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@contextlib.contextmanager
def private_cache() -> Iterator[Path]:
    """While active, TorchInductor's files are in this folder, which only this user can read or write."""
    from torch._inductor.utils import clear_caches

    before = {name: os.environ.get(name) for name in _VARIABLES}
    with private_folder() as folder:
        os.environ.update(zip(_VARIABLES, (str(folder), str(folder / "triton")), strict=True))
        clear_caches()
        try:
            yield folder
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            clear_caches()
