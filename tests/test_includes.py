"""C++ files include what they use: another standard library includes less by itself."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[1] / "csrc"
FILES = {
    path.relative_to(CSRC).as_posix(): re.sub(r"//.*", "", path.read_text())
    for path in sorted(CSRC.rglob("*"))
    if path.suffix in (".h", ".hpp", ".cpp") and "third_party" not in path.parts
}
# Names that GCC 12's headers happen to declare and GCC 13's do not, among others.
USES = {
    "cstdint": r"\bu?int(8|16|32|64|ptr)_t\b",
    "cstring": r"\bstd::mem(cpy|set|cmp|move)\b",
    "string_view": r"\bstd::string_view\b",
    "memory": r"\bstd::(unique|shared)_ptr\b",
    "optional": r"\bstd::(optional|nullopt)\b",
    "functional": r"\bstd::function\b",
    "array": r"\bstd::array\b",
    "atomic": r"\bstd::atomic\b",
    "limits": r"\bstd::numeric_limits\b",
}


@cache
def included(name: str) -> frozenset[str]:
    """The standard headers that a file includes, itself or through files of ours."""
    found = {"cstdint"} if "<stdint.h>" in FILES[name] else set()
    for angled, quoted in re.findall(r'#include (?:<([^>]+)>|"([^"]+)")', FILES[name]):
        found.add(angled)
        for file in FILES:
            if f"/{file}".endswith("/" + (angled or quoted)) and file != name:
                found |= included(file)
    return frozenset(found)


@pytest.mark.parametrize("header", USES)
def test_users_of_a_header_include_it(header: str) -> None:
    users = [name for name, text in FILES.items() if re.search(USES[header], text)]
    assert users
    assert [name for name in users if header not in included(name)] == []
