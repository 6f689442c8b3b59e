"""The build cache, as code generation and compiling use it: see `aotpack.building.cache`."""

from __future__ import annotations

from aotpack.building.cache import BuildCache, digest_of
from aotpack.building.folders import default_folder

__all__ = ["BuildCache", "default_folder", "digest_of"]
