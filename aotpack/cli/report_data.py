"""What the report of an archive shows, as JSON-compatible values: `aotpack inspect --html`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aotpack.cli.steps import device_name, layout_of, shape_of

if TYPE_CHECKING:
    from aotpack.archive import ArchiveReader, Entry, Implementation, Manifest, Reference, Step, Variant
    from aotpack.archive.description import DescribedNode, DescribedVariant
    from aotpack.cli.profiling import ProfileResult
    from aotpack.spec import TensorSpec

Json = dict[str, Any]


def report_data(reader: ArchiveReader, profile: ProfileResult | None = None) -> Json:
    """Everything that the page shows. Reads the manifest, the report of the passes and the description.

    Raises:
        ArchiveError: a part of the archive is damaged.
    """
    from aotpack.archive.description import read_description
    from aotpack.archive.report import parse_report

    manifest = reader.manifest
    description = read_description(reader) or {}
    passes = {} if manifest.report is None else parse_report(reader.read(manifest.report))
    return {
        "name": manifest.name,
        "archive": str(reader.path),
        "size": reader.size,
        "format": manifest.format_version,
        "producer": dict(manifest.producer),
        "targets": list(manifest.targets),
        "devices": list(manifest.devices),
        "updatable": manifest.weights is not None,
        "missing": _missing(manifest, profile),
        "files": [{"path": file.path, "size": file.size} for file in manifest.files],
        "constants": _constants(manifest),
        "entries": [
            _entry(entry, manifest, passes.get(entry.name, {}), description.get(entry.name, {}))
            for entry in manifest.entries
        ],
        "profile": None if profile is None else profile.to_dict(),
    }


def _missing(manifest: Manifest, profile: ProfileResult | None) -> list[str]:
    """What the report lacks, and why."""
    found = []
    if manifest.description is None:
        found.append(
            "The archive has no description of its programs, so the graph, the sources of kernels by node and the "
            "memory plan are missing. Build it again without --no-description with this version of aotpack."
        )
    if manifest.report is None:
        found.append("The archive has no report of the passes.")
    if manifest.absent:
        found.append("The archive has no weights; aotpack pack adds them.")
    if profile is None:
        found.append("Times are not measured: add --profile.")
    elif not profile.has_kernels:
        found.append(
            "The modules do not record the times of kernels, so only steps have times. Build the archive with "
            "--profile to measure kernels."
        )
    return found


def _constants(manifest: Manifest) -> list[Json]:
    shared: dict[tuple[int | None, int | None, int], list[str]] = {}
    for constant in manifest.constants:
        shared.setdefault((constant.file, constant.offset, constant.nbytes), []).append(constant.name)
    tied: dict[int, list[str]] = {}
    for tensor in manifest.weights.tensors if manifest.weights is not None else ():
        if tensor.constant is not None:
            tied.setdefault(tensor.constant, []).append(tensor.name)
    readers: dict[int, list[str]] = {}
    for where, step in _steps(manifest):
        for index in step.module.constants:
            readers.setdefault(index, []).append(where)
    rows = []
    for index, constant in enumerate(manifest.constants):
        place = (constant.file, constant.offset, constant.nbytes)
        others = shared[place] if constant.file is not None and constant.nbytes else []
        names = [*others, *tied.get(index, ())]
        rows.append(
            {
                "name": constant.name,
                "role": constant.role + (", mutated" if constant.mutated else ""),
                "dtype": str(constant.dtype),
                "shape": f"[{', '.join(map(str, constant.shape))}]",
                "bytes": constant.nbytes,
                "stored": constant.file is not None,
                "first": not others or others[0] == constant.name,
                "sharedWith": [name for name in dict.fromkeys(names) if name != constant.name],
                "from": [source for source in constant.sources if source != constant.name],
                "readBy": list(dict.fromkeys(readers.get(index, ()))),
            }
        )
    return rows


def _steps(manifest: Manifest) -> list[tuple[str, Step]]:
    """Every step, with the name of its entry, and of its variant and number where there are several."""
    found = []
    for entry in manifest.entries:
        for variant in entry.variants:
            for implementation in variant.implementations:
                for number, step in enumerate(implementation.steps, start=1):
                    where = entry.name
                    where += f", {variant.name}" if len(entry.variants) > 1 else ""
                    where += f", stage {number}" if len(implementation.steps) > 1 else ""
                    found.append((where, step))
    return found


def _entry(
    entry: Entry,
    manifest: Manifest,
    passes: Mapping[str, Sequence[Mapping[str, Any]]],
    described: Mapping[str, DescribedVariant],
) -> Json:
    return {
        "name": entry.name,
        "signature": str(entry.signature),
        "inputs": [_value(value, manifest) for value in entry.inputs],
        "outputs": [_value(value, manifest) for value in entry.outputs],
        "dims": [
            {"name": dim.name, "min": dim.min, "max": dim.max, "multipleOf": dim.multiple_of} for dim in entry.dims
        ],
        "variants": [
            _variant(variant, entry, manifest, passes.get(variant.name, ()), described.get(variant.name))
            for variant in entry.variants
        ],
    }


def _value(value: TensorSpec, manifest: Manifest) -> Json:
    if value.number is not None:
        return {
            "name": value.name,
            "dtype": value.number,
            "shape": str(value.dim or value.formula or ""),
            "layout": "scalar",
            "device": "host",
        }
    return {
        "name": value.name,
        "dtype": str(value.dtype),
        "shape": shape_of(value),
        "layout": layout_of(value) + (", mutated" if value.mutated else ""),
        "device": device_name(value.device, manifest),
    }


def _variant(
    variant: Variant,
    entry: Entry,
    manifest: Manifest,
    passes: Sequence[Mapping[str, Any]],
    described: DescribedVariant | None,
) -> Json:
    return {
        "name": variant.name,
        "when": variant.when(entry.inputs) or "always",
        "passes": [dict(found) for found in passes],
        "nodes": None if described is None else _nodes(described),
        "classes": {} if described is None else dict(described.modules),
        "implementations": [_implementation(each, entry, manifest, described) for each in variant.implementations],
    }


def _nodes(described: DescribedVariant) -> list[list[Any]]:
    """name, kind, operator, module, shapes, dtypes, devices, stage, inputs."""
    return [
        [n.name, n.kind, _operator(n), n.module, n.shapes, n.dtypes, n.devices, n.stage, list(n.inputs)]
        for n in described.nodes
    ]


def _operator(node: DescribedNode) -> str:
    return f"{node.operator} (backward of {node.backward_of})" if node.backward_of else node.operator


def _implementation(
    implementation: Implementation, entry: Entry, manifest: Manifest, described: DescribedVariant | None
) -> Json:
    from aotpack.archive import Source

    values = {Source.INPUT: entry.inputs, Source.OUTPUT: entry.outputs, Source.VALUE: implementation.values}

    def spec(reference: Reference) -> TensorSpec:
        return values[reference.source][reference.index]

    told = () if described is None else described.targets.get(implementation.target, ())
    steps: list[Json] = []
    made_by: dict[Reference, int] = {}
    transfers: list[Json] = []
    for number, step in enumerate(implementation.steps):
        module = step.module
        known = told[number] if number < len(told) else None
        kernels = [
            [kernel.name, list(kernel.ops), list(known.kernels[i]) if known and i < len(known.kernels) else []]
            for i, kernel in enumerate(module.kernels)
        ]
        steps.append(
            {
                "device": device_name(step.device, manifest),
                "target": module.target,
                "code": manifest.files[module.file].size,
                "file": manifest.files[module.file].path,
                "assets": [{"name": asset.name, "bytes": asset.nbytes} for asset in module.assets],
                "features": list(module.features),
                "constants": len(module.constants),
                "constantBytes": sum(manifest.constants[index].nbytes for index in set(module.constants)),
                "reads": [spec(reference).name for reference in step.inputs],
                "makes": [spec(reference).name for reference in step.outputs],
                "kernels": kernels,
                "hooks": "mark" in module.imports,
                "blocks": []
                if known is None
                else [[block.name, block.nbytes, block.first, block.last, block.output] for block in known.blocks],
            }
        )
        for reference in dict.fromkeys(step.inputs):
            if reference in made_by:
                source = made_by[reference]
                value = spec(reference)
                transfers.append(
                    {
                        "name": value.name,
                        "from": source,
                        "to": number,
                        "dtype": str(value.dtype),
                        "shape": shape_of(value),
                        "moves": implementation.steps[source].device != step.device,
                    }
                )
        made_by.update(dict.fromkeys(step.outputs, number))
    return {"target": implementation.target, "steps": steps, "transfers": transfers}
