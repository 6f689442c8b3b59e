"""Data-parallel training with torch.distributed: one process a worker, all with one archive.

aotpack build examples/train_ray/model.py -o train.aotpack
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
torchrun --standalone --nproc-per-node 4 --max-restarts 3 examples/train_gloo/train.py train.aotpack state.safetensors

If a worker dies, torchrun starts all of them again, and they go on from the checkpoint. torch is there for the network
alone: the archive trains without it.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits

import aotpack

BATCH = 64
# Steps between checkpoints.
INTERVAL = 10


def reduced(buckets: dict[str, Any], share: float) -> dict[str, np.ndarray]:
    """The sums over all workers of their shares: one reduction a bucket, all under way at once."""
    scaled = {name: np.asarray(bucket) * share for name, bucket in buckets.items()}
    pending = [dist.all_reduce(torch.from_numpy(bucket), async_op=True) for bucket in scaled.values()]
    for work in pending:
        work.wait()
    return scaled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--kill", type=int, default=-1, help="the step in which the last worker dies, once")
    options = parser.parse_args()
    pixels, digits = load_digits(return_X_y=True)
    images, labels = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8), digits.astype(np.int64)

    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    context = aotpack.load(options.archive).context(num_threads=1)
    if options.checkpoint.exists():
        context.load_state(options.checkpoint)
    # The optimizer counts the steps.
    first = int(context.state()["optimizer.state.1.weight.step"].numpy())
    if rank == 0 and first:
        print(f"goes on from step {first}", flush=True)
    for step in range(first, options.steps):
        if step == options.kill and rank == workers - 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        rows = np.random.default_rng(step).choice(len(images), BATCH, replace=False)
        own = np.array_split(rows, workers)[rank]
        result = context.entry("gradients")(images[own], labels[own])
        # The loss is reduced beside the gradients.
        share = len(own) / BATCH
        sums = reduced({**result["buckets"], "loss": np.asarray(result["loss"]).reshape(1)}, share)
        loss = sums.pop("loss")
        context.entry("apply")(sums, lr=0.003 / (1 + step / 20))
        if rank == 0:
            if (step + 1) % INTERVAL == 0:
                context.save_state(options.checkpoint)
            print(f"step {step}: loss {loss[0]:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
