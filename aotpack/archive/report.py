"""The report of a build inside an archive (docs/format.md): for people, and read as strictly as all the rest."""

from __future__ import annotations

import json
from typing import Any

from aotpack.archive.node import malformed

Passes = dict[str, dict[str, list[dict[str, Any]]]]


def parse_report(data: bytes) -> Passes:
    """What the passes of the build did: entry → variant → a list of passes, each with `name`, `summary` and `changes`,
    which is a list of `layer` and `note`.

    Raises:
        MalformedArchiveError: it is not of that form.
    """
    try:
        value = json.loads(data)
    except RecursionError:
        malformed("the report is nested too deeply")
    except ValueError as error:
        malformed(f"the report is not valid JSON: {error}")
    entries: Passes = {}
    for entry, variants in _object(_object(value, "the report").get("entries"), "its entries").items():
        entries[entry] = {
            variant: [_pass(item) for item in _list(passes, "the passes of a variant")]
            for variant, passes in _object(variants, "an entry").items()
        }
    return entries


def _pass(value: Any) -> dict[str, Any]:
    known = _object(value, "a pass")
    changes = [_object(change, "a change") for change in _list(known.get("changes"), "the changes of a pass")]
    return {
        **{key: _string(known, key) for key in ("name", "summary")},
        "changes": [{key: _string(change, key) for key in ("layer", "note")} for change in changes],
    }


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        malformed(f"the report: {what} should be an object")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        malformed(f"the report: {what} should be a list")
    return value


def _string(value: dict[str, Any], key: str) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        malformed(f"the report: {key!r} should be a string")
    return text
