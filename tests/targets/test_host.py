"""The name of this host's processor is the one that the runtime finds."""

from __future__ import annotations

from aotpack.runtime._native import host_processor as native
from aotpack.targets.host import host_processor


def test_the_runtime_says_the_same() -> None:
    assert host_processor() == native()
