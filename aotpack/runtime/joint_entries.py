"""Entries of one loss for several sets of inputs whose gradients they return."""

from __future__ import annotations

from aotpack.errors import EntryNotFoundError

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotpack.archive.manifest import Entry, Manifest


def entry_for(manifest: Manifest, name: str, inputs: Iterable[str]) -> str:
    """The name of the entry among `name` and `name[...]` that returns the gradients of exactly these inputs.

    Raises:
        EntryNotFoundError: there is none.
    """
    wanted = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    found = {
        entry.name: returned
        for entry in manifest.entries
        if (entry.name == name or entry.name.startswith(f"{name}[")) and (returned := _returned(entry)) is not None
    }
    for entry, returned in found.items():
        if set(returned) == set(wanted):
            return entry
    sets = "; ".join(f"{entry!r}: {_listed(returned)}" for entry, returned in found.items())
    raise EntryNotFoundError(
        f"no entry {name!r} returns the gradients of {_listed(wanted)}"
        + (f"; those that there are return: {sets}" if sets else ""),
        hint='build one with aotpack.export.aot_export(..., mode="joint", input_gradients=[...])',
    )


def _returned(entry: Entry) -> tuple[str, ...] | None:
    """The inputs whose gradients an entry returns; None where it is no loss."""
    from aotpack.spec import DictSpec

    result = entry.out_spec
    if not isinstance(result, DictSpec) or result.keys[:2] != ("outputs", "gradients"):
        return None
    parts = dict(zip(result.keys, result.items, strict=True))
    gradients = parts.get("input_gradients")
    return tuple(map(str, gradients.keys)) if isinstance(gradients, DictSpec) else ()


def _listed(inputs: tuple[str, ...]) -> str:
    return ", ".join(map(repr, inputs)) or "no inputs"
