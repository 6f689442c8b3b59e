"""Tests of what older versions of torch do not do."""

from __future__ import annotations

import pytest
import torch

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def needs_torch(major: int, minor: int, because: str) -> pytest.MarkDecorator:
    """Skips a test with a version of torch older than this one."""
    return pytest.mark.skipif((major, minor) > VERSION, reason=f"torch before {major}.{minor} {because}")
