"""Which ways the kernels of an archive go, as measured on hosts: a file that readers may ignore (docs/format.md)."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotpack.archive.encode import canonical
from aotpack.archive.node import malformed
from aotpack.errors import TamperedArchiveError

if TYPE_CHECKING:
    from aotpack.archive.manifest import Manifest
    from aotpack.archive.reader import ArchiveReader

TUNING_PATH = "tuning/tuning.json"
_SITE = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """The way of a site: of all calls of a kernel with the same sizes.

    Attributes:
        site: what the module calls it, 16 hex digits.
        choice: the way, a number of 32 bits; 0 is what the kernel chooses by itself.
        kernel, numbers: the kernel and its sizes, for people.
        speedup: seconds of way 0 by seconds of this way, as measured.
    """

    site: str
    choice: int
    kernel: str
    numbers: tuple[int, ...]
    speedup: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was measured of modules of a target, on a processor, with a number of threads. `choices` are sorted by site;
    the kernels at all other sites choose by themselves.
    """

    target: str
    processor: str
    threads: int
    choices: tuple[Choice, ...]

    @property
    def key(self) -> tuple[str, str, int]:
        """What an archive has one of."""
        return self.target, self.processor, self.threads


def tuning_file(manifest: Manifest) -> int | None:
    """The index of the file; None: the archive was never tuned."""
    return next((index for index, file in enumerate(manifest.files) if file.path == TUNING_PATH), None)


def read_tunings(reader: ArchiveReader) -> tuple[Tuning, ...]:
    """What an archive says of all hosts.

    Raises:
        MalformedArchiveError: the file is not what docs/format.md says.
    """
    index = tuning_file(reader.manifest)
    return () if index is None else decode_tunings(reader.read(index))


def encode_tunings(tunings: Iterable[Tuning]) -> bytes:
    """The bytes of the file, in an order of its own: the same tunings make the same bytes.

    Raises:
        ValueError: two are for the same target, processor and threads.
    """
    ordered = sorted(tunings, key=lambda tuning: tuning.key)
    if len({tuning.key for tuning in ordered}) != len(ordered):
        raise ValueError("two tunings for the same target, processor and number of threads")
    encoded = [
        {
            "target": tuning.target,
            "processor": tuning.processor,
            "threads": tuning.threads,
            "choices": [
                {
                    "site": each.site,
                    "choice": each.choice,
                    "kernel": each.kernel,
                    "numbers": list(each.numbers),
                    "speedup": each.speedup,
                }
                for each in sorted(tuning.choices)
            ],
        }
        for tuning in ordered
    ]
    return canonical({"tuning": encoded})


def decode_tunings(data: bytes) -> tuple[Tuning, ...]:
    """The tunings of a file.

    Raises:
        MalformedArchiveError: these are not its bytes.
    """
    try:
        value = json.loads(data)
        tunings = tuple(_tuning(item) for item in _fields(value, "tuning")[0])
        same = encode_tunings(tunings) == data
    except (ValueError, TypeError, RecursionError) as error:
        malformed(f"{TUNING_PATH}: {error}")
    if not same:
        malformed(f"{TUNING_PATH} is not in its canonical form")
    return tunings


def _fields(value: Any, *names: str) -> list[Any]:
    if not isinstance(value, dict) or sorted(value) != sorted(names):
        raise ValueError(f"an object with {', '.join(names)} is expected")
    return [value[name] for name in names]


def _tuning(value: Any) -> Tuning:
    target, processor, threads, choices = _fields(value, "target", "processor", "threads", "choices")
    if not (isinstance(target, str) and target and isinstance(processor, str) and processor):
        raise ValueError("target and processor are names")
    found = tuple(_choice(item) for item in choices)
    if len({each.site for each in found}) != len(found):
        raise ValueError("two choices for one site")
    return Tuning(target, processor, _whole(threads, 1, 0x7FFFFFFF), found)


def _choice(value: Any) -> Choice:
    site, choice, kernel, numbers, speedup = _fields(value, "site", "choice", "kernel", "numbers", "speedup")
    if not isinstance(site, str) or not _SITE.fullmatch(site):
        raise ValueError(f"{site!r} is not 16 lowercase hex digits")
    if not isinstance(kernel, str) or not kernel:
        raise ValueError("kernel is a name")
    if not isinstance(speedup, float):
        raise TypeError("speedup is a number")
    sizes = tuple(_whole(number, -(1 << 63), (1 << 63) - 1) for number in numbers)
    return Choice(site, _whole(choice, 0, 0xFFFFFFFF), kernel, sizes, speedup)


def _whole(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r} is not a whole number in [{least}, {most}]")
    return value


def replace_tunings(path: str | os.PathLike[str], tunings: Iterable[Tuning]) -> bool:
    """Gives an archive these tunings in the place of its own: whether that changed anything.

    All other files, and what the manifest says of them, stay as they are. The archive is replaced by a rename once the
    new one is complete; processes that have the old one open keep it.

    Raises:
        ArchiveError: the archive cannot be read, or is damaged.
        OSError: it cannot be written, and is as it was.
    """
    from aotpack.archive.reader import ArchiveReader
    from aotpack.archive.writer import FileSource, stage_archive

    path = Path(path).resolve()
    file = FileSource.from_bytes(TUNING_PATH, encode_tunings(tunings))
    with ArchiveReader(path) as reader:
        index = tuning_file(reader.manifest)
        count = len(reader.manifest.files)
        if index is not None and reader.manifest.files[index].sha256 == file.sha256:
            return False
        # Numbers of files stay what they are: in its place, or at the end.
        sources = [file if number == index else reader.source(number) for number in range(count)]
        if index is None:
            sources.append(file)
        try:
            with stage_archive(path, reader.manifest, sources) as staged:
                shutil.copymode(path, staged.path)
                staged.commit()
        except ValueError as error:
            # A source's bytes are not those of its hash.
            raise TamperedArchiveError(f"tampered archive: {path}: {error}") from error
    return True
