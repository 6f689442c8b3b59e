"""Reading generated C++ as text: matching braces, strings and comments."""

from __future__ import annotations

import re

_STRING_OR_COMMENT = re.compile(r'R"(?P<tag>\w*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def blank_literals(text: str) -> str:
    """The text with the contents of strings and comments replaced by blanks, positions and line ends kept."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    return _STRING_OR_COMMENT.sub(blank, text)


def closing_brace(blanked: str, opening: int) -> int:
    """The position of the brace that closes the one at `opening`.

    Raises:
        ValueError: there is none.
    """
    depth = 0
    for match in re.finditer(r"[{}]", blanked[opening:]):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return opening + match.start()
    raise ValueError("unbalanced braces in generated code")
