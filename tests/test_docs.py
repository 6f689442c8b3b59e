"""The documentation: line width, links, and phrases to avoid, also in docstrings and comments of the sources."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "bench/*.md", "examples/*/README.md")
    for page in ROOT.glob(pattern)
)
SOURCES = sorted(
    source.relative_to(ROOT).as_posix()
    for folder, pattern in (("aotpack", "*.py"), ("csrc", "*.h"), ("csrc", "*.hpp"), ("csrc", "*.cpp"))
    for source in ROOT.joinpath(folder).rglob(pattern)
    if "third_party" not in source.parts
)
COLUMNS = 100

# Each has a plain alternative, such as "unsupported" for "refused by name". Matched regardless of case and line breaks.
AVOID = (
    r"nobody",
    r"(is|are|was|were) told",
    r"of ours",
    r"refused by name",
    r"(sizes|numbers) that vary",
    r"vary in nothing",
    r"what is left out",
    r"(call|calls) that fits?",
    r"that (is|are) no",
    r"whoever",
    r"becomes of",
    r"none but",
    r"(is|are) known by",
    r"for good",
    r"out of data",
)
_AVOID = re.compile(r"\b(" + "|".join(phrase.replace(" ", r"\s+") for phrase in AVOID) + r")\b", re.IGNORECASE)


def avoided(text: str) -> list[str]:
    """The phrases of `AVOID` in a text."""
    return [" ".join(found.group(0).split()) for found in _AVOID.finditer(text)]


def remarks(path: Path) -> str:
    """The docstrings and comments of a source file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return re.sub(r"(?m)^//", "", "\n".join(re.findall(r"//[^\n]*|/\*(?s:.*?)\*/", text)))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = (ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, documented))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = (token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT)
    return "\n".join([*docs, *comments])


def prose(text: str) -> list[tuple[int, str]]:
    """The lines of a page with their numbers, without tables and code blocks."""
    lines, code = [], False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.lstrip().startswith("|"):
            lines.append((number, line))
    return lines


def too_long(line: str) -> bool:
    """Whether a line exceeds the limit and has a place where it could be broken: code and links have none."""
    unbroken = re.sub(r"`[^`]*`|\]\([^)]*\)|https?://\S+", lambda m: m.group(0).replace(" ", "_"), line.strip())
    return len(line) > COLUMNS and max(map(len, unbroken.split())) + len(line) - len(line.lstrip()) <= COLUMNS - 4


@pytest.mark.parametrize("page", PAGES)
def test_lines_are_wrapped(page: str) -> None:
    lines = prose((ROOT / page).read_text(encoding="utf-8"))
    assert [(number, line) for number, line in lines if too_long(line)] == []


@pytest.mark.parametrize("page", PAGES)
def test_phrases(page: str) -> None:
    assert avoided((ROOT / page).read_text(encoding="utf-8")) == []


def test_phrases_of_sources() -> None:
    found = {source: avoided(remarks(ROOT / source)) for source in SOURCES}
    assert {source: phrases for source, phrases in found.items() if phrases} == {}


def test_remarks_are_docstrings_and_comments(tmp_path: Path) -> None:
    python, cpp = tmp_path / "a.py", tmp_path / "a.h"
    python.write_text('"""It is\ntold."""\nx = "nobody"  # none\n# but x\n')
    assert avoided(remarks(python)) == ["is told", "none but"]
    cpp.write_text('const char* x = "nobody";  // for\n// good\n/* of ours */\n')
    assert avoided(remarks(cpp)) == ["for good", "of ours"]


@pytest.mark.parametrize("page", PAGES)
def test_links(page: str) -> None:
    """Links to files of the repository, and to headings of the same page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    headings = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)}
    prose_text = "\n".join(line for _, line in prose(text)) + "\n".join(re.findall(r"^\|.*$", text, re.M))
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose_text)):
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif "://" not in target:
            assert (ROOT / page).parent.joinpath(target.split("#")[0]).exists(), target


def test_the_checks_find_what_they_look_for() -> None:
    assert avoided("An operator that\nis told, refused by\nname.") == ["is told", "refused by name"]
    assert avoided("The call is rejected with its name.") == []
    assert too_long("word " * 30)
    assert not too_long("See [this page](https://example.org/" + "x" * 100 + ").")
    assert prose("a\n```\nb\n```\n| c |\nd") == [(1, "a"), (6, "d")]
