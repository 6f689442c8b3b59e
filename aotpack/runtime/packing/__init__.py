"""Packing: an updatable archive with other weights becomes an archive of its own, without torch and a compiler."""

from __future__ import annotations

from aotpack.runtime.packing.pack import PackReport, pack_weights

__all__ = ["PackReport", "pack_weights"]
