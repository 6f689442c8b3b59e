"""Continues a prompt with the archive of the decoder, in a process without torch.

aotpack build examples/decoder/model.py -o decoder.aotpack
python examples/decoder/generate.py decoder.aotpack [--tokens 64] [TOKEN...]
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

import aotpack

PROMPT = [1, 42, 7, 300, 12]


def generate(context: aotpack.Context, prompt: list[int], count: int) -> list[int]:
    """The `count` most likely tokens after `prompt`, one by one. Overwrites the state of `context`."""
    prefill, decode = context.entry("prefill"), context.entry("decode")
    logits = prefill(np.array([prompt], np.int64))
    tokens: list[int] = []
    while True:
        tokens.append(int(np.asarray(logits)[0].argmax()))
        if len(tokens) == count:
            return tokens
        logits = decode(np.array([tokens[-1:]], np.int64), len(prompt) + len(tokens) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Continues a prompt.")
    parser.add_argument("archive")
    parser.add_argument("prompt", nargs="*", type=int, metavar="TOKEN", help="numbers below 1000")
    parser.add_argument("--tokens", type=int, default=64, metavar="N")
    options = parser.parse_args()
    model = aotpack.load(options.archive)
    context = model.context()
    generate(context, PROMPT, 2)  # the first call in a context allocates its memory
    began = time.perf_counter()
    tokens = generate(context, options.prompt or PROMPT, options.tokens)
    seconds = time.perf_counter() - began
    assert "torch" not in sys.modules
    print(*tokens)
    print(f"{len(tokens)} tokens, {1e3 * seconds / len(tokens):.2f} ms each", file=sys.stderr)


if __name__ == "__main__":
    main()
