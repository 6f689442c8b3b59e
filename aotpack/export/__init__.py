"""Builds archives. Requires torch: `pip install aotpack[build]`.

>>> program = aot_export(model, (x,), dynamic_shapes={"x": {0: aotpack.Dim("batch", 1, 64)}})
>>> build_archive(program, "model.aotpack")

A model larger than memory is captured without its weights. The build reads them from their files:

>>> with without_weights():
...     model = LargeModel()
>>> program = aot_export(model, (x,), weights="model.safetensors")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotpack.building.collector import no_collections

# Imports make objects that live to the end, torch's above all: a fourth of their time would go into looking for cycles.
with no_collections(ageing=True):
    from aotpack.export.capture.exported import load_exported
    from aotpack.export.capture.generation import Generator
    from aotpack.export.capture.models import aot_export
    from aotpack.export.capture.streaming import without_weights
    from aotpack.export.capture.variants import Variant, Variants
    from aotpack.export.custom_ops.kernels import custom_kernel, kernel_include_dir
    from aotpack.export.driver.build import build_archive
    from aotpack.export.driver.options import BuildOptions
    from aotpack.export.driver.report import BuildReport
    from aotpack.export.driver.stage_folder import build_stages
    from aotpack.export.ir.program import Program
    from aotpack.export.partition.devices import Device, Link, Topology
    from aotpack.export.partition.mapping import Part
    from aotpack.export.partition.partitioner import partition
    from aotpack.export.partition.result import Partitioning
    from aotpack.export.rewriting.match import Match
    from aotpack.export.rewriting.rewrite import Rewrite, rewrite_pattern
    from aotpack.export.training.options import TrainingOptions

if TYPE_CHECKING:
    from aotpack.export.onnx.importer import from_onnx

__all__ = [
    "BuildOptions",
    "BuildReport",
    "Device",
    "Generator",
    "Link",
    "Match",
    "Part",
    "Partitioning",
    "Program",
    "Rewrite",
    "Topology",
    "TrainingOptions",
    "Variant",
    "Variants",
    "aot_export",
    "build_archive",
    "build_stages",
    "custom_kernel",
    "from_onnx",
    "kernel_include_dir",
    "load_exported",
    "partition",
    "rewrite_pattern",
    "without_weights",
]


def __getattr__(name: str) -> object:
    # With its operators and the package `onnx`: who builds from torch needs none of that.
    if name == "from_onnx":
        from aotpack.export.onnx.importer import from_onnx

        globals()[name] = from_onnx
        return from_onnx
    raise AttributeError(f"module 'aotpack.export' has no attribute {name!r}")
