"""Language models of transformers with a static cache, the way they are exported: small, random, prefill and decode
entries over one cache.

`python -m tests.models.static_caches [NAME…]` builds all of them with batches of 1 and 2, decodes greedily in a process
without torch, and compares the tokens with eager's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.integrations import executorch

from aotpack import Dim
from aotpack.export import BuildOptions, Program, aot_export, build_archive

ROOT = Path(__file__).resolve().parent.parent.parent
TOKENS = 32
PROMPT = 5
_ROOM = 48
_VOCABULARY = 61
_SMALL: dict[str, Any] = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
# Special tokens of the configurations lie outside of so small a vocabulary.
_NO_TOKENS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class Case:
    """A model to decode with.

    Attributes:
        programs: the entries `prefill` and `decode` of an archive, and `encode` if there is an encoder.
        prompt: the first tokens of the decoder.
        source: what the encoder gets.
        logits: eager's logits for all tokens so far, without a cache.
    """

    programs: Sequence[Program]
    prompt: Tensor
    source: Tensor | None
    logits: Callable[[Tensor], Tensor]


# ---- decoders -------------------------------------------------------------------------------------------------------


def _cached(model: Any, batch: int) -> nn.Module:
    model.generation_config = transformers.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=_ROOM,
        cache_config={"batch_size": batch, "max_cache_len": _ROOM},
    )
    return executorch.TorchExportableModuleWithStaticCache(model).eval()


def _decoder(model: Any, batch: int, wrap: Callable[[Any, int], nn.Module] = _cached) -> Case:
    wrapped = wrap(model, batch)
    prompt = torch.randint(3, _VOCABULARY, (batch, PROMPT))
    shapes = {"input_ids": {1: Dim("n", 1, 16)}, "cache_position": {0: "n"}}
    prefill = {"input_ids": prompt, "cache_position": torch.arange(PROMPT)}
    decode = {"input_ids": prompt[:, :1], "cache_position": torch.tensor([PROMPT])}
    programs = [
        aot_export(wrapped, (), prefill, dynamic_shapes=shapes, entry="prefill"),
        aot_export(wrapped, (), decode, entry="decode"),
    ]
    return Case(programs, prompt, None, lambda ids: model(ids, use_cache=False).logits)


def llama(batch: int) -> Case:
    """One layer: the others have several."""
    config = transformers.LlamaConfig(**{**_SMALL, "num_hidden_layers": 1}, **_NO_TOKENS)
    return _decoder(transformers.LlamaForCausalLM(config).eval(), batch)


def qwen3(batch: int) -> Case:
    config = transformers.Qwen3Config(**_SMALL, **_NO_TOKENS, head_dim=8)
    return _decoder(transformers.Qwen3ForCausalLM(config).eval(), batch)


def phi3(batch: int) -> Case:
    config = transformers.Phi3Config(**_SMALL, **_NO_TOKENS)
    return _decoder(transformers.Phi3ForCausalLM(config).eval(), batch)


def gemma3(batch: int) -> Case:
    """Layers with a sliding window and layers without."""
    layers = ["sliding_attention", "full_attention"]
    config = transformers.Gemma3TextConfig(
        **_SMALL, **_NO_TOKENS, head_dim=8, sliding_window=8, layer_types=layers, query_pre_attn_scalar=8
    )
    model = transformers.Gemma3ForCausalLM(config).eval()
    return _decoder(
        model, batch, lambda model, batch: executorch.TorchExportableModuleWithHybridCache(model, batch, _ROOM)
    )


# ---- encoders and decoders ------------------------------------------------------------------------------------------


class _Encoder(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, source: Tensor) -> Tensor:
        states: Tensor = self.encoder(source).last_hidden_state
        return states


def t5(batch: int) -> Case:
    """The decoder of transformers' recipe: a static cache of its own, the encoder's states with every call."""
    config = transformers.T5Config(
        vocab_size=_VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    source = torch.randint(3, _VOCABULARY, (batch, 7))
    wrapped = executorch.Seq2SeqLMDecoderExportableModuleWithStaticCache(model, _ROOM, batch).eval()
    encoder = _Encoder(model.get_encoder()).eval()
    with torch.no_grad():
        states = encoder(source)
    prompt = torch.cat([torch.zeros(batch, 1, dtype=torch.long), torch.randint(3, _VOCABULARY, (batch, 2))], 1)
    m, n = Dim("m", 1, 16), Dim("n", 1, 16)
    programs = [
        aot_export(encoder, (source,), dynamic_shapes={"source": {1: m}}, entry="encode"),
        aot_export(
            wrapped,
            (prompt, states, torch.arange(3)),
            dynamic_shapes={"decoder_input_ids": {1: n}, "encoder_hidden_states": {1: m}, "cache_position": {0: n}},
            entry="prefill",
        ),
        aot_export(
            wrapped,
            (prompt[:, :1], states, torch.tensor([3])),
            dynamic_shapes={"encoder_hidden_states": {1: m}},
            entry="decode",
        ),
    ]
    return Case(
        programs, prompt, source, lambda ids: model(input_ids=source, decoder_input_ids=ids, use_cache=False).logits
    )


class _CachedWhisper(nn.Module):
    """A decoder that keeps what it computes of the audio, too."""

    def __init__(self, model: Any, batch: int) -> None:
        super().__init__()
        config = model.config
        frames, heads = config.max_source_positions, config.decoder_attention_heads
        caches = [transformers.StaticCache(config=config, max_cache_len=length) for length in (_ROOM, frames)]
        for name, cache in zip(("own", "cross"), caches, strict=True):
            cache.early_initialization(batch, heads, config.d_model // heads, torch.float32, torch.device("cpu"))
            for i, layer in enumerate(cache.layers):
                self.register_buffer(f"{name}_keys_{i}", layer.keys, persistent=False)
                self.register_buffer(f"{name}_values_{i}", layer.values, persistent=False)
                self.register_buffer(f"{name}_seen_{i}", layer.cumulative_length, persistent=False)
        self.cache = transformers.EncoderDecoderCache(*caches)
        self.decoder, self.head = model.get_decoder(), model.proj_out
        self.register_buffer("audio", torch.zeros(batch, frames, config.d_model))

    def prefill(self, ids: Tensor, audio: Tensor) -> Tensor:
        self.audio.copy_(audio)
        for layer in (*self.cache.self_attention_cache.layers, *self.cache.cross_attention_cache.layers):
            layer.cumulative_length.zero_()
        return self._run(ids, heard=False)

    def decode(self, ids: Tensor) -> Tensor:
        return self._run(ids, heard=True)

    def _run(self, ids: Tensor, heard: bool) -> Tensor:
        self.cache.is_updated = dict.fromkeys(range(len(self.decoder.layers)), heard)
        states = self.decoder(
            input_ids=ids, encoder_hidden_states=self.audio, past_key_values=self.cache, use_cache=True
        )
        logits: Tensor = self.head(states.last_hidden_state)
        return logits


def whisper(batch: int) -> Case:
    config = transformers.WhisperConfig(
        vocab_size=_VOCABULARY,
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=8,
        max_source_positions=12,
        max_target_positions=_ROOM,
        decoder_start_token_id=1,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = transformers.WhisperForConditionalGeneration(config).eval()
    wrapped, encoder = _CachedWhisper(model, batch).eval(), _Encoder(model.get_encoder()).eval()
    source = torch.randn(batch, 8, 24)
    prompt = torch.randint(3, _VOCABULARY, (batch, 3))
    with torch.no_grad():
        audio = encoder(source)
    programs = [
        aot_export(encoder, (source,), entry="encode"),
        aot_export(wrapped, (prompt, audio), dynamic_shapes={"ids": {1: Dim("n", 1, 16)}}, method="prefill"),
        aot_export(wrapped, (prompt[:, :1],), method="decode"),
    ]
    return Case(
        programs,
        prompt,
        source,
        lambda ids: model(input_features=source, decoder_input_ids=ids, use_cache=False).logits,
    )


CASES: dict[str, Callable[[int], Case]] = {
    "llama": llama,
    "qwen3": qwen3,
    "phi3": phi3,
    "gemma3": gemma3,
    "t5": t5,
    "whisper": whisper,
}

# ---- comparison -----------------------------------------------------------------------------------------------------


def compared(name: str, batch: int, folder: Path, cache: Path | None = None) -> dict[str, Any]:
    """Builds a case and decodes: `tokens` of the archive, `expected` of eager, and by how much eager's choices were
    clear.
    """
    torch.manual_seed(batch)
    case = CASES[name](batch)
    path = folder / f"{name}-{batch}.aotpack"
    build_archive(case.programs, path, options=BuildOptions(cache_dir=cache))
    given = {"prompt": case.prompt.tolist(), "tokens": TOKENS, "style": name}
    if case.source is not None:
        given["source"] = case.source.tolist()
    script = Path(__file__).with_name("greedy.py")
    done = subprocess.run(
        [sys.executable, str(script), str(path)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    expected, margin = _eager(case)
    return {"tokens": json.loads(done.stdout), "expected": expected, "margin": margin}


def _eager(case: Case) -> tuple[list[list[int]], float]:
    ids, margin = case.prompt, float("inf")
    with torch.no_grad():
        for _ in range(TOKENS):
            best = case.logits(ids)[:, -1].topk(2)
            margin = min(margin, float((best.values[:, 0] - best.values[:, 1]).min()))
            ids = torch.cat([ids, best.indices[:, :1]], 1)
    return ids[:, case.prompt.shape[1] :].tolist(), margin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*CASES, []], help="cases; by default all")
    names = parser.parse_args().names or list(CASES)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for batch in (1, 2):
                began = time.perf_counter()
                result = compared(name, batch, Path(folder))
                equal = result["tokens"] == result["expected"]
                failed += not equal
                seconds = time.perf_counter() - began
                text = "equal" if equal else f"differ: {result['tokens']} instead of {result['expected']}"
                print(f"{name:8} batch {batch}  {TOKENS} tokens {text}  margin {result['margin']:.3g}  {seconds:.0f} s")
                sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
