"""Loggers of torch that report a trace or a file that fails, which this package reports itself."""

from __future__ import annotations

REPORTING = (
    "torch.export",
    "torch.export._trace",
    "torch.export.pt2_archive._package",
    "torch.fx.experimental.symbolic_shapes",
    "torch._export.non_strict_utils",
)
