"""Targets: the kinds of machines that modules are compiled for. Needs no torch."""

from __future__ import annotations

from aotpack.targets.gpus import GpuInfo
from aotpack.targets.table import BY_NAME, TABLE, TargetInfo
from aotpack.targets.target import BUILDABLE, Target

__all__ = ["BUILDABLE", "BY_NAME", "TABLE", "GpuInfo", "Target", "TargetInfo"]
