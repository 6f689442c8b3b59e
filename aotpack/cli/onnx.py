"""`aotpack build model.onnx --size batch=4 --constant axes=[0,1]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer


def parse_sizes(options: Sequence[str] | None) -> dict[str, int]:
    """Parses the `--size` options.

    Raises:
        typer.BadParameter: an option is malformed.
    """
    sizes = {}
    for text in options or ():
        name, equals, size = text.rpartition("=")
        if not equals or not name or not size.isdecimal():
            raise typer.BadParameter(f"{text!r} is invalid: use DIM=SIZE, such as batch=4", param_hint="'--size'")
        sizes[name] = int(size)
    return sizes


def parse_constants(options: Sequence[str] | None) -> dict[str, Any]:
    """Parses the `--constant` options.

    Raises:
        typer.BadParameter: an option is malformed.
    """
    constants = {}
    for text in options or ():
        name, equals, value = text.partition("=")
        try:
            constants[name] = json.loads(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise typer.BadParameter(
                f"{text!r} is invalid: use INPUT=VALUE, such as axes=[0,1]", param_hint="'--constant'"
            )
    return constants
