"""Vectors in memory of any alignment are declared in the way that every compiler heeds."""

from __future__ import annotations

import re
from pathlib import Path

_SOURCES = Path(__file__).resolve().parents[2] / "csrc"
_ALIAS = re.compile(r"\busing\s[^;{}]*\baligned\s*\([^;]*;")
_TYPEDEF = re.compile(r"\btypedef\s[^;{}]*?(\w+)\s*__attribute__[^;]*\baligned\s*\([^;]*;")


def _texts() -> dict[Path, str]:
    return {path: path.read_text() for path in _SOURCES.rglob("*") if path.suffix in (".h", ".cpp", ".hpp", ".inc")}


def test_no_alias_declaration_sets_an_alignment() -> None:
    # clang ignores it there without a warning: every archive that it built stopped at the first tensor whose address
    # is no multiple of a vector's size.
    found = [f"{path.name}: {match[0]}" for path, text in _texts().items() for match in _ALIAS.finditer(text)]
    assert found == []


def test_the_compiler_is_asked_about_each_alignment() -> None:
    names = [(text, name) for text in _texts().values() for name in _TYPEDEF.findall(text)]
    assert len(names) >= 8
    assert [name for text, name in names if f"alignof({name})" not in text] == []
