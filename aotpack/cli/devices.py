"""The option `--device`: loads archives on a device, and says which device an archive supports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotpack.runtime import Model


def _checked(device: str | None) -> str | None:
    if device is None or device == "cpu":
        return device
    kind, colon, number = device.partition(":")
    is_number = number.isascii() and number.isdigit() and len(number) <= 6
    if kind != "cuda" or is_number != bool(colon):
        raise typer.BadParameter(f'{device!r} is not the name of a device, such as "cpu" or "cuda:0"')
    return device


DeviceName = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        callback=_checked,
        help="Device to run on: `cpu`, or a GPU such as `cuda:0`. Default: `cpu`.",
    ),
]


GraphLimit = Annotated[
    int | None,
    typer.Option(
        "--graphs",
        min=0,
        max=4096,
        metavar="N",
        help="CUDA graphs to keep at most; 0 launches each kernel. Default: 8.",
    ),
]


def load_on(
    archive: Path,
    device: str | None,
    *,
    threads: int | None = None,
    graphs: int | None = None,
    verify: Literal["code", "full"] = "code",
) -> Model:
    """Loads an archive on a device; None is the CPU.

    Raises:
        UnsupportedTargetError: the archive has no module for the device. The hint names a device that it supports.
        AotpackError: as for `aotpack.load`.
    """
    from aotpack.errors import UnsupportedTargetError
    from aotpack.runtime import load

    try:
        return load(archive, verify=verify, device=device or "cpu", num_threads=threads, graphs=graphs)
    except UnsupportedTargetError as error:
        hint = other_device(_targets(archive), device or "cpu")
        if hint is None:
            raise
        raise UnsupportedTargetError(str(error), hint=hint) from error


def other_device(targets: Sequence[str], device: str) -> str | None:
    """A hint to use another kind of device than `device`; None if the archive has no module that runs there."""
    if device == "cpu":
        others, name = [target for target in targets if target.startswith("cuda-")], "cuda:0"
    else:
        others, name = [target for target in targets if _runs_here(target)], "cpu"
    return f"the archive has modules for {', '.join(others)}: use --device {name}" if others else None


def _runs_here(target: str) -> bool:
    from aotpack.errors import UnsupportedTargetError
    from aotpack.targets import Target

    try:
        return Target(target).runs_on(Target.host())
    except UnsupportedTargetError:
        return False


def _targets(archive: Path) -> tuple[str, ...]:
    from aotpack.archive import ArchiveReader

    with ArchiveReader(archive) as reader:
        return tuple(reader.manifest.targets)
