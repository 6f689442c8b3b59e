"""Building archives, for all tests of the build side."""

from __future__ import annotations

from tests.support.building import Build, assert_close, build, check, in_double, pack

__all__ = ["Build", "assert_close", "build", "check", "in_double", "pack"]
