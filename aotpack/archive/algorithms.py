"""How long the algorithms of convolutions took on the machine that built an archive, and which were chosen: a file for
people, which readers may ignore (docs/format.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from aotpack.archive.encode import canonical
from aotpack.archive.node import malformed

if TYPE_CHECKING:
    from aotpack.archive.reader import ArchiveReader

ALGORITHMS_PATH = "tuning/algorithms.json"


@dataclass(frozen=True, slots=True)
class MeasuredAlgorithms:
    """What was measured of an operator with given sizes.

    Attributes:
        operator, numbers: `conv` or `block`, and its sizes (docs/format.md).
        target, processor, threads: of which module, where, and with how many threads in a call.
        nanoseconds: of a call, by algorithm.
        chosen: the algorithms that the archive's calls of these sizes use.
    """

    operator: str
    numbers: tuple[int, ...]
    target: str
    processor: str
    threads: int
    nanoseconds: dict[str, int]
    chosen: tuple[str, ...]


def encode_algorithms(measured: Iterable[MeasuredAlgorithms]) -> bytes:
    """The bytes of the file, in an order of its own."""
    ordered = sorted(measured, key=lambda each: (each.operator, each.numbers, each.target, each.threads))
    encoded = [asdict(each) | {"numbers": list(each.numbers), "chosen": list(each.chosen)} for each in ordered]
    return canonical({"algorithms": encoded})


def read_algorithms(reader: ArchiveReader) -> tuple[MeasuredAlgorithms, ...]:
    """What an archive says; nothing where its build did not measure.

    Raises:
        MalformedArchiveError: the file is not what docs/format.md says.
    """
    index = next((i for i, file in enumerate(reader.manifest.files) if file.path == ALGORITHMS_PATH), None)
    return () if index is None else decode_algorithms(reader.read(index))


def decode_algorithms(data: bytes) -> tuple[MeasuredAlgorithms, ...]:
    """What a file says.

    Raises:
        MalformedArchiveError: these are not its bytes.
    """
    try:
        found = tuple(_measured(item) for item in json.loads(data)["algorithms"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        malformed(f"{ALGORITHMS_PATH}: {error!r}")
    return found


def _measured(item: Any) -> MeasuredAlgorithms:
    texts = [item[name] for name in ("operator", "target", "processor")]
    times = {str(name): _whole(value) for name, value in item["nanoseconds"].items()}
    chosen = tuple(str(name) for name in item["chosen"])
    if not all(isinstance(text, str) and text for text in texts) or not times or not set(chosen) <= set(times):
        raise ValueError("names and times of algorithms are expected")
    numbers = tuple(_whole(number) for number in item["numbers"])
    return MeasuredAlgorithms(texts[0], numbers, texts[1], texts[2], _whole(item["threads"]), times, chosen)


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is not a whole number")
    return value
