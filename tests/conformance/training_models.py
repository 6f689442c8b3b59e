"""Models of full size with an optimizer, which `tests.conformance.training` trains."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bench.models import build
from tests.support.torchless import ROOT

F = nn.functional


@dataclass(frozen=True)
class Training:
    """What is trained.

    Attributes:
        model: in training mode; it is trained without dropout: archives draw other numbers than eager.
        batch: draws the arguments of the model and those of the loss.
        loss: called with the outputs of the model and its own arguments.
        optimizer: makes it from parameters.
        autocast: to bfloat16, in forward and backward.
    """

    model: nn.Module
    batch: Callable[[torch.Generator], tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]
    loss: Callable[..., Tensor]
    optimizer: Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]
    autocast: bool = False


def made(name: str) -> Training:
    """The same in every process."""
    torch.manual_seed(0)
    training = MODELS[name]()
    for module in training.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return training


def _adamw(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01)


def _sgd(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    # At ten times this rate, ResNet-18 multiplies differences by five in each step, in eager too.
    return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, weight_decay=1e-4)


def _adagrad(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=0.01)


def _logits_loss(outputs: Any, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs["logits"], labels)


def _next_token_loss(outputs: Any, tokens: Tensor) -> Tensor:
    return F.cross_entropy(outputs["logits"][:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def _resnet18() -> Training:
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes: dict[str, Any] = {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "layer_type": "basic"}
    model = ResNetForImageClassification(ResNetConfig(embedding_size=64, num_labels=100, **sizes))

    def batch(random: torch.Generator) -> Any:
        return (torch.randn(8, 3, 64, 64, generator=random),), (torch.randint(100, (8,), generator=random),)

    return Training(model, batch, _logits_loss, _sgd)


def _bert() -> Training:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)

    def batch(random: torch.Generator) -> Any:
        return (torch.randint(30000, (2, 32), generator=random),), (torch.randint(2, (2,), generator=random),)

    return Training(BertForSequenceClassification(config), batch, _logits_loss, _adamw)


def _gpt2() -> Training:
    """With tied weights: those of the embedding are those of the last layer."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0, use_cache=False)

    def batch(random: torch.Generator) -> Any:
        tokens = torch.randint(50000, (2, 32), generator=random)
        return (tokens,), (tokens,)

    return Training(GPT2LMHeadModel(config), batch, _next_token_loss, _adamw)


def _lstm() -> Training:
    def batch(random: torch.Generator) -> Any:
        return (torch.randn(8, 20, 128, generator=random),), (torch.randint(32, (8, 20), generator=random),)

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten())

    return Training(build("lstm")[0].train(), batch, loss, _adamw)


def _dlrm() -> Training:
    """With embedding bags, whose gradients are dense."""
    model, (dense, sparse) = build("dlrm")

    def batch(random: torch.Generator) -> Any:
        rows = torch.randint(10_000, sparse.shape, generator=random)
        return (torch.randn(dense.shape, generator=random), rows), (torch.rand(len(dense), generator=random).round(),)

    def loss(probabilities: Tensor, clicks: Tensor) -> Tensor:
        return F.binary_cross_entropy(probabilities.flatten(), clicks.to(probabilities.dtype))

    return Training(model.train(), batch, loss, _adagrad)


def _minilm_lora() -> Training:
    """As in examples/finetune_minilm."""
    folder = str(ROOT / "examples" / "finetune_minilm")
    sys.path.insert(0, folder)
    try:
        import lora
    finally:
        sys.path.remove(folder)

    def batch(random: torch.Generator) -> Any:
        mask = torch.ones(4, 16, dtype=torch.int64)
        mask[1, 9:] = 0
        ids = torch.randint(1000, 30000, (4, 16), generator=random)
        return (ids, mask), (torch.randint(6, (4,), generator=random),)

    return Training(lora.model(), batch, lora.loss, _adamw)


def _autocast() -> Training:
    """BERT of three layers: products in bfloat16, parameters and moments in float32."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(num_hidden_layers=3, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)

    def batch(random: torch.Generator) -> Any:
        return (torch.randint(30000, (2, 32), generator=random),), (torch.randint(2, (2,), generator=random),)

    return Training(BertForSequenceClassification(config), batch, _logits_loss, _adamw, autocast=True)


MODELS: dict[str, Callable[[], Training]] = {
    "resnet18": _resnet18,
    "bert": _bert,
    "gpt2": _gpt2,
    "lstm": _lstm,
    "dlrm": _dlrm,
    "minilm-lora": _minilm_lora,
    "bert-autocast": _autocast,
}
