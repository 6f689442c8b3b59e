"""Files that tests write again and again."""

from __future__ import annotations

from pathlib import Path


def write_anew(path: Path, content: bytes) -> None:
    """Replaces a file by a new one. One that is truncated and filled again goes to the disk at once on ext4, which
    takes longer than what most tests do with it.
    """
    path.unlink(missing_ok=True)
    path.write_bytes(content)
