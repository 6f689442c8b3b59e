"""`python -m tests.conformance.architectures`: small random models of transformers' architectures against eager.

Each is built in a process of its own, and its archive is called with the example and compared with eager.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.conformance.task import Platform
from tests.support.torchless import ROOT

# What makes a model small, by the names that configurations have for it.
_SMALL: dict[str, int] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "num_experts", "num_local_experts"), 4),
    **dict.fromkeys(("head_dim", "d_kv", "kv_channels", "state_size", "n_routed_experts", "patch_size"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("moe_intermediate_size", "embedding_size", "q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("num_key_value_heads", "num_decoder_layers", "n_group", "num_experts_per_tok"), 2),
    **dict.fromkeys(("topk_group", "first_k_dense_replace", "bos_token_id", "cls_token_id"), 1),
    "decoder_start_token_id": 1,
    "eos_token_id": 2,
    "sep_token_id": 2,
    "mask_token_id": 3,
    "pad_token_id": 0,
    "vocab_size": 120,
    "max_position_embeddings": 64,
    "image_size": 32,
    "rotary_dim": 4,
    "shared_expert_intermediate_size": 16,
}
_STAGES = {"image_size": 64, "num_attention_heads": [1, 2, 4, 8], "hidden_sizes": [8, 16, 24, 32], "depths": [1] * 4}
# What single architectures need besides.
_SPECIAL: dict[str, dict[str, Any]] = {
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "attn_layer_indices": [1]},
    "big_bird": {"attention_type": "original_full"},
    "deepseek_v3": {"head_dim": None, "num_key_value_heads": 4},
    "funnel": {"block_sizes": [1, 1], "d_head": 8, "d_inner": 64},
    "glpn": {"num_attention_heads": [1, 2, 4, 8]},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "levit": {"image_size": 64, "patch_size": 16, "hidden_sizes": [16, 32, 48], "num_attention_heads": [2, 4, 6]},
    "mamba2": {"num_heads": 8, "n_groups": 1, "chunk_size": 4},
    "mobilebert": {"intra_bottleneck_size": 16, "true_hidden_size": 16},
    "poolformer": {"patch_size": 7},
    "pvt": _STAGES,
    "pvt_v2": _STAGES,
    "segformer": _STAGES,
    "squeezebert": {"embedding_size": 32},
    "yolos": {"image_size": [32, 32]},
}
_HEADLESS = {"funnel": "FunnelBaseModel"}
_NAMES = """
albert bamba bart beit bert big_bird biogpt blenderbot bloom codegen cohere convbert ctrl data2vec-audio deberta
deberta-v2 deepseek_v3 deit dinov2 dinov3_vit distilbert dpt electra esm falcon falcon_mamba fnet funnel gemma
gemma2 gemma3_text glm4 glpn gpt2 gpt_neo gpt_neox gpt_oss gptj granite granitemoe hubert jamba layoutlm levit llama
longt5 mamba mamba2 marian mbart minimax mistral mobilebert mobilenet_v1 mobilenet_v2 mobilevit modernbert mpnet mpt
mt5 nystromformer olmo olmo2 olmoe openai-gpt opt pegasus phi phi3 poolformer prophetnet pvt pvt_v2 qwen2 qwen2_moe
qwen3 recurrent_gemma regnet resnet roberta roformer rwkv segformer sew smollm3 squeezebert stablelm starcoder2
swiftformer switch_transformers t5 umt5 unispeech vit vit_msn wav2vec2 wavlm xglm xlnet yolos
"""
ARCHITECTURES = tuple(_NAMES.split())
# Of the largest value of a result.
_TOLERANCE = 2e-5


def model_of(name: str) -> Any:
    """A random model, with the head of a language model where there is one and the body is a decoder's."""
    import transformers
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoModel, AutoModelForCausalLM

    kind = CONFIG_MAPPING[name]
    known = kind().to_dict()
    config = kind(**{**{key: value for key, value in _SMALL.items() if key in known}, **_SPECIAL.get(name, {})})
    if name in _HEADLESS:
        model = getattr(transformers, _HEADLESS[name])._from_config(config)
    else:
        decodes = kind in MODEL_FOR_CAUSAL_LM_MAPPING and not getattr(config, "is_encoder_decoder", False)
        model = (AutoModelForCausalLM if decodes else AutoModel).from_config(config)
    model.config.use_cache = False
    return model.eval()


def inputs_of(model: Any) -> dict[str, Any]:
    """Two texts of 12 tokens, two images or two sounds."""
    import torch

    main = model.main_input_name
    if main == "pixel_values":
        size = getattr(model.config, "image_size", 64)
        size = size if isinstance(size, int) else size[0]
        return {main: torch.randn(2, getattr(model.config, "num_channels", 3), size, size)}
    if main == "input_values":
        return {main: torch.randn(2, 4000)}
    inputs = {main: torch.randint(4, 100, (2, 12))}
    if "attention_mask" in inspect.signature(model.forward).parameters:
        inputs["attention_mask"] = torch.ones(2, 12, dtype=torch.int64)
    if getattr(model.config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = torch.randint(4, 100, (2, 7))
    return inputs


def run_one(name: str, cache: Path | None, platform: Platform) -> dict[str, Any]:
    """Builds and compares; what came out. Errors of the build are the caller's to see."""
    import torch
    from torch.utils import _pytree as pytree

    import aotpack
    from aotpack.export import BuildOptions, aot_export, build_archive

    torch.manual_seed(0)
    model = model_of(name)
    inputs = inputs_of(model)

    class Tensors(torch.nn.Module):
        """The tensors of a result, of whatever class that is."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, **inputs: Any) -> list[Any]:
            return [leaf for leaf in pytree.tree_leaves(self.model(**inputs).to_tuple()) if torch.is_tensor(leaf)]

    whole = Tensors().eval()
    with torch.no_grad():
        expected = whole(**inputs)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.aotpack"
        options = BuildOptions(check=False, cache_dir=cache)
        build_archive(aot_export(whole, (), inputs), path, targets=[platform.target], options=options)
        seconds = time.monotonic() - began
        results = aotpack.load(path, device=platform.device or "cpu")(**inputs)
        error = max(_error(torch.as_tensor(a.numpy()), b) for a, b in zip(results, expected, strict=True))
    ending = "ok" if error <= _TOLERANCE else "wrong"
    return {"architecture": name, "ending": ending, "error": error, "seconds": round(seconds, 1)}


def _error(result: Any, expected: Any) -> float:
    """Of the largest value; infinite where one is NaN and the other not."""
    if result.shape != expected.shape or not (result.isnan() == expected.isnan()).all():
        return float("inf")
    if expected.numel() == 0:
        return 0.0
    difference = (result.double() - expected.double()).nan_to_num().abs().max()
    return float(difference / expected.double().nan_to_num().abs().max().clamp(min=1e-30))


def run_all(
    names: Iterable[str], *, jobs: int, cache: Path | None, platform: Platform | None = None, limit: float = 600
) -> list[dict[str, Any]]:
    """Each in a process; reports as they end."""
    platform = platform or Platform()

    def run(name: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.conformance.architectures", "--one", name]
        command += ["--cache", str(cache)] if cache is not None else []
        command += ["--target", platform.target, *(["--device", platform.device] if platform.device else [])]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            record = {"architecture": name, "ending": "fails", "reason": f"took more than {limit:g} s"}
        else:
            record = _record(name, done)
        print(*(f"{value:.1e}" if key == "error" else value for key, value in record.items()), flush=True)
        return record

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(run, names))


def _record(name: str, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    # A message may go on for lines behind the one with the error's class.
    said = [line for line in done.stderr.splitlines() if re.match(r"[\w.]+(Error|Exception)\b", line)]
    reason = said[-1] if said else f"ended with {done.returncode}"
    return {"architecture": name, "ending": "refused" if "Unsupported" in reason else "fails", "reason": reason}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.architectures", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="as transformers' CONFIG_MAPPING has them; by default all"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time; default: %(default)s")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="build cache; by default the user's")
    parser.add_argument("--target", default="native", help="what archives are built for; default: %(default)s")
    parser.add_argument("--device", help="where they run, e.g. cuda:0; default: cpu")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes all records there")
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    platform = Platform(options.target, options.device)
    if options.one is not None:
        warnings.simplefilter("ignore")
        print(json.dumps(run_one(options.one, options.cache, platform)))
        return 0
    records = run_all(options.names or ARCHITECTURES, jobs=options.jobs, cache=options.cache, platform=platform)
    if options.json is not None:
        options.json.write_text(json.dumps(records, indent=1) + "\n")
    right = sum(record["ending"] == "ok" for record in records)
    print(f"{right} of {len(records)} architectures give eager's results")
    return 0 if right == len(records) else 1


if __name__ == "__main__":
    sys.exit(main())
