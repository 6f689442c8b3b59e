"""The report of an archive: one HTML page that loads nothing. `aotpack inspect --html`.

The page is `report_page/page.html` with styles, scripts and the data inside. Its policy (CSP) allows no connection and
no script but this one.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from aotpack._version import __version__

_FOLDER = Path(__file__).parent / "report_page"
_SCRIPTS = ("core.js", "graph.js", "program.js", "main.js")
_PLACE = re.compile(r"@([A-Z_]+)@")


def render(data: dict[str, Any]) -> str:
    """The page that shows this data (`aotpack.cli.report_data.report_data`)."""
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "NAME": html.escape(data["name"] or "archive"),
        "TITLE": html.escape(f"{data['name'] or 'archive'} – aotpack report"),
        "ARCHIVE": html.escape(data["archive"]),
        "SIGNATURES": html.escape("\n".join(entry["signature"] for entry in data["entries"])),
        "VERSION": html.escape(__version__),
        "STYLE": (_FOLDER / "page.css").read_text(encoding="utf-8").strip(),
        "SCRIPT_HASH": f"sha256-{digest}",
        "DATA": embedded(data),
        "SCRIPT": script.strip("\n"),
    }
    # In one go: what is put in is not searched again.
    return _PLACE.sub(lambda place: parts[place[1]], (_FOLDER / "page.html").read_text(encoding="utf-8"))


def embedded(data: dict[str, Any]) -> str:
    """JSON for an element `script`, which nothing in it can end: `<` is escaped."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@lru_cache(maxsize=1)
def _script() -> str:
    """The script, with the line breaks that are around it in the page: its hash is of exactly these bytes."""
    return "\n" + "\n".join((_FOLDER / name).read_text(encoding="utf-8").strip() for name in _SCRIPTS) + "\n"
