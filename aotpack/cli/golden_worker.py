"""The process that runs the goldens of archives while they are built (aotpack/export/driver/self_check.py starts it).

Requests come on stdin, answers go to stdout: the length as 8 bytes, little-endian, then a pickle or JSON. The code of
an archive runs here, apart from the process that builds. Without a request for a minute the process ends with status 0.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

from aotpack.archive import ArchiveReader, Golden, GoldenTensor
from aotpack.cli.goldens import run_golden
from aotpack.errors import AotpackError, OutOfMemoryError, UnsupportedTargetError
from aotpack.runtime import load

# (entry, variant, golden, its bytes where the archive does not have them)
Example = tuple[str, str, Golden, bytes | None]

_IDLE_SECONDS = 60.0


def check(path: str, examples: Sequence[Example]) -> dict[str, Any]:
    """Runs the examples; the answer for JSON: `{"target", "results"}`, or `{"skipped"}` where this machine cannot."""
    results: list[dict[str, Any]] = []
    try:
        model = load(path)
    except UnsupportedTargetError as error:
        return {"skipped": str(error)}
    with ArchiveReader(path) as reader:
        outputs = {entry.name: entry.outputs for entry in reader.manifest.entries}
        for entry, variant, golden, data in examples:

            def read(tensor: GoldenTensor, data: bytes | None = data) -> bytes:
                if data is not None:
                    return data[tensor.offset : tensor.offset + tensor.nbytes]
                return reader.read(tensor.file, tensor.offset, tensor.nbytes)

            result: dict[str, Any] = {"entry": entry, "variant": variant}
            results.append(result)
            try:
                found = run_golden(model.entry(entry), golden, outputs[entry], read)
            except (OutOfMemoryError, MemoryError) as error:
                return {"skipped": f"not enough memory to run the example call: {error}"}
            except AotpackError as error:
                result["failure"] = str(error)
                continue
            result["ran"] = found.variant
            result["outputs"] = [
                {"name": o.output, "error": o.error, "tolerance": o.tolerance, "problem": o.problem, "ok": o.ok}
                for o in found.outputs
            ]
    return {"target": model.target, "results": results}


def main() -> None:
    """Answers requests until stdin ends."""
    requests: BinaryIO = os.fdopen(os.dup(0), "rb")
    answers: BinaryIO = os.fdopen(os.dup(1), "wb")
    # What the model's code prints must not end up among the answers.
    os.dup2(2, 1)
    while True:
        if not select.select([requests], [], [], _IDLE_SECONDS)[0]:
            return
        head = requests.read(8)
        if len(head) < 8:
            return
        path, examples = pickle.loads(requests.read(struct.unpack("<Q", head)[0]))
        try:
            answer = check(path, examples)
        except Exception as error:
            answer = {"failure": f"{type(error).__name__}: {error}"}
        data = json.dumps(answer).encode()
        answers.write(struct.pack("<Q", len(data)) + data)
        answers.flush()


if __name__ == "__main__":
    main()
