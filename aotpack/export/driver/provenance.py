"""How an archive came about, for people: what the passes did, and what the code was compiled from and with."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from itertools import chain

import torch

from aotpack._version import __version__
from aotpack.export.backends.backend import LoweredModule, Tools
from aotpack.export.driver.compiled import CompiledUnit
from aotpack.export.driver.host_steps import report_of
from aotpack.export.ir.program import PassReport


def pass_reports(compiled: CompiledUnit) -> tuple[PassReport, ...]:
    """What each pass did: those that are true on every device, then those of each backend, and host steps."""
    common = compiled.unit.program.reports
    found = list(common)
    for number, modules in enumerate(compiled.stages(), start=1):
        backends = {module.backend.name: module.program.reports[len(common) :] for module in modules}
        for report in chain.from_iterable(backends.values()):
            stage = "" if compiled.split is None else f"stage {number}: "
            found.append(dataclasses.replace(report, summary=stage + report.summary))
    steps = compiled.host_steps
    return (*found, *([report_of(steps)] if steps else []))


def encoded_pass_reports(units: Sequence[CompiledUnit]) -> bytes:
    """The file of these reports; docs/format.md has the form."""
    entries: dict[str, dict[str, object]] = {}
    for compiled in units:
        unit = compiled.unit
        entries.setdefault(unit.name, {})[unit.variant] = [dataclasses.asdict(r) for r in pass_reports(compiled)]
    return json.dumps({"entries": entries}, indent=1, sort_keys=True).encode() + b"\n"


def producer(units: Sequence[CompiledUnit], tools: Tools) -> dict[str, str]:
    """The manifest's `producer`: versions, flags, and a hash of the sources."""
    modules = [module for unit in units for module in unit.modules]
    backends = {module.backend.name: module.backend for module in modules}
    told: dict[str, str] = {}
    for name, backend in backends.items():
        own = [module.lowered for module in modules if module.backend.name == name]
        told.update(backend.provenance(own, tools))
    providers = sorted({name for module in modules for name in module.lowered.providers})
    return {
        "aotpack": __version__,
        "torch": str(torch.__version__),
        "compiler": tools.compiler.version,
        "source_sha256": _source_hash([module.lowered for module in modules]),
        **told,
        **({"providers": ", ".join(providers)} if providers else {}),
        **({"float32_products": "tf32"} if any(module.lowered.tf32 for module in modules) else {}),
    }


def _source_hash(lowered: Sequence[LoweredModule]) -> str:
    digest = hashlib.sha256()
    for module in lowered:
        for text in module.sources:
            digest.update(text.encode() + b"\0")
    return digest.hexdigest()
