"""What `--kernel` says: C++ kernels of custom operators."""

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
    """One `--kernel`: the operator, the file with its kernel, and the function's name unless it is the operator's."""

    operator: str
    file: Path
    function: str | None


def parse_kernels(options: Sequence[str] | None) -> list[KernelOption]:
    """What the options say.

    Raises:
        typer.BadParameter: one of them is of another form.
    """
    return [_parse(option) for option in options or ()]


def _parse(option: str) -> KernelOption:
    match = _OPTION.fullmatch(option)
    if match is None or "::" not in match["operator"]:
        raise typer.BadParameter(
            f"{option!r} is not of the form namespace::operator=file.cpp or namespace::operator=file.cpp:function",
            param_hint="'--kernel'",
        )
    return KernelOption(match["operator"], Path(match["file"]), match["function"])


@contextlib.contextmanager
def kernels_registered(kernels: Sequence[KernelOption]) -> Iterator[None]:
    """While active, archives are built with these kernels; what a source registers itself is forgotten afterwards too.

    Raises:
        BuildError: a kernel is refused, see `aotpack.export.custom_kernel`.
    """
    from aotpack.export import custom_kernel
    from aotpack.export.custom_ops.kernels import custom_kernels_restored

    with custom_kernels_restored():
        for kernel in kernels:
            custom_kernel(kernel.operator, sources=[kernel.file], function=kernel.function)
        yield
