"""Greedy decoding with an archive, numpy and nothing else: `greedy.py ARCHIVE`, the prompt as JSON on the input."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

# An import of either fails.
sys.modules["torch"] = None  # type: ignore[assignment]
sys.modules["transformers"] = None  # type: ignore[assignment]

import aotpack  # noqa: E402


def main() -> None:
    given = json.load(sys.stdin)
    # The second context sees what another one has done to its state, which must be nothing.
    model = aotpack.load(sys.argv[1], verify="full", num_threads=1)
    first = decode(model.context(), given)
    if decode(model.context(), given) != first:
        raise RuntimeError("two contexts decode different tokens")
    json.dump(first, sys.stdout)


def decode(context: Any, given: dict[str, Any]) -> list[list[int]]:
    ids = np.array(given["prompt"], np.int64)
    prefill, step = context.entry("prefill"), context.entry("decode")
    states = None
    if "source" in given:
        source = np.array(given["source"])
        source = source.astype(np.int64 if source.dtype.kind == "i" else np.float32)
        states = context.entry("encode")(source)
    result: list[Any] = []
    for position in range(given["tokens"]):
        begin = ids.shape[1] + position - 1 if position else 0
        now = ids if not position else result[-1]
        at = np.arange(begin, begin + now.shape[1])
        entry = step if position else prefill
        if states is None:
            logits = entry(input_ids=now, cache_position=at)
        elif given["style"] == "t5":
            logits = entry(now, states, at)
        else:
            logits = entry(now) if position else entry(now, states)
        result.append(np.asarray(logits)[:, -1].argmax(-1)[:, None])
    return np.concatenate(result, 1).tolist()  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
