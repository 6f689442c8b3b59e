"""Small random models of transformers, called as their users call them, with a batch from 1 on and any length.

`python -m tests.models.zoo [NAME…]` builds all of them, and compares the archives with eager in double precision: batch
1 and 8, the bounds of the length, and sizes in between.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import aotpack
from aotpack import Dim
from aotpack.errors import AotpackError
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.support.building import assert_close, in_double

BATCH = Dim("b", 1, 8)
_VOCABULARY = 100
_TOLERANCE = 1e-4
_DRAWN = 2
_SMALL: dict[str, Any] = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
_NO_TOKENS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}


@dataclass(frozen=True)
class Recipe:
    """A model and how it is called.

    Attributes:
        model: in eval mode.
        call: the keyword arguments for so many samples of such a length.
        length: the dim of the length, and which axis of which argument has it; None for a fixed length.
        fixed: the length of the example.
    """

    model: nn.Module
    call: Callable[[int, int], dict[str, Tensor]]
    length: Dim | None = None
    axes: tuple[str, ...] = ()
    fixed: int = 6

    def example(self) -> dict[str, Tensor]:
        return self.call(2, self.fixed)

    def shapes(self) -> dict[str, Any]:
        def sizes(name: str) -> dict[int, Dim]:
            return {0: BATCH, 1: self.length} if self.length is not None and name in self.axes else {0: BATCH}

        return {name: sizes(name) for name in self.example()}

    def sizes(self) -> Iterator[tuple[int, int]]:
        """Bounds of batch and length together, batch 1 with the example's length, and some drawn by lot."""
        low, high = (self.fixed, self.fixed) if self.length is None else (self.length.min, self.length.max)
        assert high is not None
        draw = random.Random(0)
        drawn = [(draw.randint(1, 8), draw.randint(low, high)) for _ in range(_DRAWN)]
        yield from dict.fromkeys([(1, low), (1, high), (8, low), (8, high), (1, self.fixed), *drawn])


def _ids(batch: int, length: int) -> Tensor:
    return torch.randint(3, _VOCABULARY, (batch, length))


def _text(batch: int, length: int) -> dict[str, Tensor]:
    return {"input_ids": _ids(batch, length)}


def _padded(batch: int, length: int) -> dict[str, Tensor]:
    """Texts of all lengths, with padding behind them."""
    lengths = torch.randint(1, length + 1, (batch, 1))
    lengths[0] = length
    return {"input_ids": _ids(batch, length), "attention_mask": (torch.arange(length) < lengths).long()}


def _of_text(model: Any, *, padded: bool = False, low: int = 1, high: int = 16) -> Recipe:
    return Recipe(model.eval(), _padded if padded else _text, Dim("n", low, high), ("input_ids", "attention_mask"))


def qwen3_moe() -> Recipe:
    config = transformers.Qwen3MoeConfig(
        **_SMALL, **_NO_TOKENS, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    )
    return _of_text(transformers.Qwen3MoeForCausalLM(config), padded=True)


def mixtral() -> Recipe:
    config = transformers.MixtralConfig(**_SMALL, **_NO_TOKENS, num_local_experts=4, num_experts_per_tok=2)
    return _of_text(transformers.MixtralForCausalLM(config), padded=True)


def llama4() -> Recipe:
    """Layers with and without rotary embedding, attention in chunks of 8, a routed expert beside a shared one."""
    config = transformers.Llama4TextConfig(
        **{**_SMALL, "num_hidden_layers": 2},
        **_NO_TOKENS,
        head_dim=8,
        intermediate_size_mlp=64,
        num_local_experts=4,
        attention_chunk_size=8,
        no_rope_layers=[1, 0],
        layer_types=["chunked_attention", "full_attention"],
    )
    return _of_text(transformers.Llama4ForCausalLM(config), padded=True)


def gpt2() -> Recipe:
    config = transformers.GPT2Config(
        vocab_size=_VOCABULARY, n_embd=32, n_layer=1, n_head=4, n_positions=64, **_NO_TOKENS
    )
    return _of_text(transformers.GPT2LMHeadModel(config), padded=True)


def bert() -> Recipe:
    config = transformers.BertConfig(**{**_SMALL, "num_key_value_heads": None}, pad_token_id=0)
    return _of_text(transformers.BertModel(config), padded=True)


def t5() -> Recipe:
    config = transformers.T5Config(
        vocab_size=_VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, pad_token_id=0, eos_token_id=1
    )
    return _of_text(transformers.T5EncoderModel(config), padded=True)


def _images(size: int) -> Callable[[int, int], dict[str, Tensor]]:
    return lambda batch, _: {"pixel_values": torch.randn(batch, 3, size, size)}


def vit() -> Recipe:
    config = transformers.ViTConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, image_size=16, patch_size=4
    )

    return Recipe(transformers.ViTModel(config).eval(), _images(16))


def wav2vec2() -> Recipe:
    """Sounds with padding behind them."""
    config = transformers.Wav2Vec2Config(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        conv_dim=(16, 16),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
        feat_extract_norm="layer",
    )

    def sounds(batch: int, length: int) -> dict[str, Tensor]:
        lengths = torch.randint(min(40, length), length + 1, (batch, 1))
        lengths[0] = length
        mask = torch.arange(length) < lengths
        return {"input_values": torch.randn(batch, length) * mask, "attention_mask": mask.long()}

    model = transformers.Wav2Vec2ForCTC(config).eval()
    return Recipe(model, sounds, Dim("n", 40, 400), ("input_values", "attention_mask"), 200)


def longrope() -> Recipe:
    """Rotary embeddings with other factors from 17 tokens on."""
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [3.0] * 4}
    parameters = {**rope, "factor": 2.0, "original_max_position_embeddings": 16}
    config = transformers.LlamaConfig(**_SMALL, **_NO_TOKENS, rope_parameters=parameters)
    return _of_text(transformers.LlamaForCausalLM(config), high=32)


def mamba2() -> Recipe:
    """Scans in chunks of 4, of any length."""
    config = transformers.Mamba2Config(
        vocab_size=_VOCABULARY,
        hidden_size=32,
        state_size=8,
        num_heads=8,
        head_dim=8,
        n_groups=1,
        num_hidden_layers=1,
        chunk_size=4,
        use_cache=False,
    )
    return _of_text(transformers.Mamba2ForCausalLM(config))


def mamba() -> Recipe:
    """Its scan is a loop in Python, so the length is fixed."""
    config = transformers.MambaConfig(
        vocab_size=_VOCABULARY, hidden_size=32, state_size=4, num_hidden_layers=1, use_cache=False
    )
    return Recipe(transformers.MambaForCausalLM(config).eval(), _text)


def segformer() -> Recipe:
    """As narrow as can be: stages of one channel and of two."""
    config = transformers.SegformerConfig(
        hidden_sizes=[1, 2, 4, 8], depths=[1] * 4, num_attention_heads=[1] * 4, decoder_hidden_size=4, num_labels=3
    )
    return Recipe(transformers.SegformerForSemanticSegmentation(config).eval(), _images(64))


class _Ranked(nn.Module):
    """Scores that differ clearly from place to place."""

    def __init__(self, head: nn.Module, places: int) -> None:
        super().__init__()
        self.head = head
        self.register_buffer("rank", torch.randperm(places)[:, None] * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(x) + self.rank
        return scores


def rt_detr() -> Recipe:
    """The best 30 of 84 places become queries. Random weights give scores with ties, and with differences below the
    rounding of float32: which places are chosen, and in which order, is then no property of the model, and eager in
    double chooses others than eager in float32. Here the scores have an order.
    """
    config = transformers.RTDetrConfig(
        backbone_config=transformers.RTDetrResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 8, 16, 16],
            depths=[1] * 4,
            layer_type="basic",
            out_features=["stage2", "stage3", "stage4"],
        ),
        encoder_hidden_dim=16,
        encoder_in_channels=[8, 16, 16],
        encoder_ffn_dim=16,
        encoder_attention_heads=2,
        d_model=16,
        num_queries=30,
        decoder_in_channels=[16] * 3,
        decoder_ffn_dim=16,
        decoder_layers=2,
        decoder_attention_heads=2,
        num_labels=5,
        num_denoising=0,
    )
    model = transformers.RTDetrModel(config).eval()
    model.enc_score_head = _Ranked(model.enc_score_head, 8 * 8 + 4 * 4 + 2 * 2)
    return Recipe(model, _images(64))


RECIPES: dict[str, Callable[[], Recipe]] = {
    "qwen3_moe": qwen3_moe,
    "mixtral": mixtral,
    "llama4": llama4,
    "gpt2": gpt2,
    "bert": bert,
    "t5": t5,
    "vit": vit,
    "wav2vec2": wav2vec2,
    "longrope": longrope,
    "mamba": mamba,
    "mamba2": mamba2,
    "segformer": segformer,
    "rt_detr": rt_detr,
}


def _eager(model: nn.Module, call: dict[str, Tensor]) -> Any:
    """In double; experts one after the other, as their fused products have no double."""
    reference = copy.deepcopy(model).double()
    if hasattr(reference, "set_experts_implementation"):
        reference.set_experts_implementation("eager")
    with torch.no_grad():
        return _tensors(reference(**in_double(call)))


def _tensors(result: Any) -> list[Tensor]:
    leaves = pytree.tree_leaves(dict(result))
    return [torch.as_tensor(leaf) for leaf in leaves if leaf is not None]


def compare(name: str, folder: Path, cache: Path | None = None) -> int:
    """Builds a recipe's archive and calls it at its sizes; the number of calls.

    Raises:
        AssertionError: a result is not eager's, or the archive does not accept all sizes that were declared.
        aotpack.errors.AotpackError: it could not be built.
    """
    torch.manual_seed(0)
    recipe = RECIPES[name]()
    program = aot_export(recipe.model, (), recipe.example(), dynamic_shapes=recipe.shapes())
    declared = [BATCH] if recipe.length is None else [BATCH, recipe.length]
    ranges = {dim.name: (dim.min, dim.max) for dim in program.signature.dims}
    assert ranges == {dim.name: (dim.min, dim.max) for dim in declared}
    path = folder / f"{name}.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache))
    archive = aotpack.load(path, num_threads=1)
    number = 0
    for batch, length in recipe.sizes():
        call = recipe.call(batch, length)
        found, expected = _tensors(archive(**call)), _eager(recipe.model, call)
        try:
            assert_close(found, expected, _TOLERANCE)
        except AssertionError as error:
            raise AssertionError(f"{name}: {batch} samples of length {length}: {error}") from None
        number += 1
    return number


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*RECIPES, []], help="by default all")
    names = parser.parse_args().names or list(RECIPES)
    warnings.simplefilter("ignore")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            began = time.perf_counter()
            try:
                text = f"right in {compare(name, Path(folder))} calls"
            except (AssertionError, AotpackError) as error:
                text, failed = f"fails: {type(error).__name__}: {error}", failed + 1
            print(f"{name:12} {text}  {time.perf_counter() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
