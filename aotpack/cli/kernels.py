"""The option `--kernel`: C++ kernels of custom operators."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

# The function may be qualified, `nms.cpp:vision::nms`: the first single colon ends the file.
_OPTION = re.compile(r"(?P<operator>[^=]+)=(?P<file>.+?)(?:(?<!:):(?!:)(?P<function>[A-Za-z_][\w:]*))?")


@dataclass(frozen=True)
class KernelOption:
    """One `--kernel` option: the operator, its source file, and the function's name if it differs."""

    operator: str
    file: Path
    function: str | None


def parse_kernels(options: Sequence[str] | None) -> list[KernelOption]:
    """Parses the options.

    Raises:
        typer.BadParameter: an option is malformed.
    """
    return [_parse(option) for option in options or ()]


def _parse(option: str) -> KernelOption:
    match = _OPTION.fullmatch(option)
    if match is None or "::" not in match["operator"]:
        raise typer.BadParameter(
            f"{option!r} is invalid: use namespace::operator=file.cpp or namespace::operator=file.cpp:function",
            param_hint="'--kernel'",
        )
    return KernelOption(match["operator"], Path(match["file"]), match["function"])


@contextlib.contextmanager
def kernels_registered(kernels: Sequence[KernelOption]) -> Iterator[None]:
    """While active, archives are built with these kernels. Kernels that a source registers are removed afterwards too.

    Raises:
        BuildError: a kernel is invalid, see `aotpack.export.custom_kernel`.
    """
    from aotpack.export import custom_kernel
    from aotpack.export.custom_ops.kernels import custom_kernels_restored

    with custom_kernels_restored():
        for kernel in kernels:
            custom_kernel(kernel.operator, sources=[kernel.file], function=kernel.function)
        yield
