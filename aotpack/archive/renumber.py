"""A manifest whose files and constants are in other places."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from aotpack.archive.constants import Placement
from aotpack.archive.manifest import (
    FORMAT_VERSION,
    Constant,
    Entry,
    Golden,
    GoldenTensor,
    Manifest,
    Module,
    Variant,
)

# By file and name of an asset: where it begins.
AssetOffsets = Mapping[tuple[int, str], tuple[int, int]]


def renumbered(
    manifest: Manifest,
    placements: Mapping[int, Placement],
    numbers: Mapping[int, int],
    *,
    assets: AssetOffsets | None = None,
    goldens: bool = False,
) -> Manifest:
    """The manifest without files, in the present format.

    Args:
        manifest: of an archive.
        placements: where constants are now, by index. Constants without a place are absent.
        numbers: the new number of each file that is kept, by the old one.
        assets: offset and size of assets that have changed, by the old number of their file and their name.
        goldens: whether example calls are kept.
    """
    return dataclasses.replace(
        manifest,
        constants=tuple(_constant(constant, placements.get(i)) for i, constant in enumerate(manifest.constants)),
        entries=tuple(_entry(entry, numbers, assets or {}, goldens=goldens) for entry in manifest.entries),
        files=(),
        format_version=FORMAT_VERSION,
        report=None if manifest.report is None else numbers[manifest.report],
        description=None if manifest.description is None else numbers[manifest.description],
    )


def _constant(constant: Constant, place: Placement | None) -> Constant:
    if place is None:
        return dataclasses.replace(constant, file=None, offset=None, sha256=None)
    return dataclasses.replace(
        constant, file=place.segment, offset=place.offset, nbytes=place.nbytes, sha256=place.sha256
    )


def _entry(entry: Entry, numbers: Mapping[int, int], assets: AssetOffsets, *, goldens: bool) -> Entry:
    return dataclasses.replace(
        entry,
        variants=tuple(_variant(variant, numbers, assets) for variant in entry.variants),
        goldens=tuple(_golden(golden, numbers) for golden in entry.goldens) if goldens else (),
    )


def _variant(variant: Variant, numbers: Mapping[int, int], assets: AssetOffsets) -> Variant:
    implementations = tuple(
        dataclasses.replace(
            each,
            steps=tuple(dataclasses.replace(step, module=_module(step.module, numbers, assets)) for step in each.steps),
        )
        for each in variant.implementations
    )
    return dataclasses.replace(variant, implementations=implementations)


def _module(module: Module, numbers: Mapping[int, int], assets: AssetOffsets) -> Module:
    placed = []
    for asset in module.assets:
        offset, nbytes = assets.get((asset.file, asset.name), (asset.offset, asset.nbytes))
        placed.append(dataclasses.replace(asset, file=numbers[asset.file], offset=offset, nbytes=nbytes))
    return dataclasses.replace(module, file=numbers[module.file], assets=tuple(placed))


def _golden(golden: Golden, numbers: Mapping[int, int]) -> Golden:
    def tensor(each: GoldenTensor) -> GoldenTensor:
        return dataclasses.replace(each, file=numbers[each.file])

    return dataclasses.replace(
        golden, inputs=tuple(map(tensor, golden.inputs)), outputs=tuple(map(tensor, golden.outputs))
    )
