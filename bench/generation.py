"""Text generation in one call against transformers' `generate` in eager PyTorch, interleaved.

python -m bench.generation [--new 64] [--prompt 16] [--threads 2] [--runs 5]

GPT-2 small with random weights, batch 1, fp32. Tokens of both are compared.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import aotpack
from aotpack.export import Generator, aot_export, build_archive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new", type=int, default=64, help="new tokens (default: 64)")
    parser.add_argument("--prompt", type=int, default=16, help="tokens of the prompt (default: 16)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0)).eval()
    ids = torch.randint(1, 50000, (1, options.prompt))
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "generate.aotpack"
        began = time.perf_counter()
        generator = Generator(model, options.prompt + options.new)
        build_archive(aot_export(generator.eval(), (ids, torch.tensor(2))), path)
        print(f"capture and build: {time.perf_counter() - began:.1f} s")
        archive = aotpack.load(path, num_threads=options.threads)
        times: dict[str, list[float]] = {"aotpack": [], "transformers": []}
        for _ in range(options.runs):
            began = time.perf_counter()
            answer = archive(ids.numpy(), np.int64(options.new))
            times["aotpack"].append(time.perf_counter() - began)
            began = time.perf_counter()
            expected = model.generate(
                ids, max_new_tokens=options.new, do_sample=False, eos_token_id=None, pad_token_id=0
            )
            times["transformers"].append(time.perf_counter() - began)
            assert (answer["sequences"] == expected.numpy()).all(), "other tokens"
    ours, theirs = (statistics.median(times[name]) for name in ("aotpack", "transformers"))
    print(f"{options.new} tokens: aotpack {ours:.3f} s, transformers {theirs:.3f} s, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
