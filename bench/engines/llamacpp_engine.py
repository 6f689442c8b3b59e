"""llama.cpp on the Llama-like step: weights in its own formats F32, BF16, Q8_0 and Q4_0, by the library in the wheel of
llama-cpp-python. The cache is fp16, its default.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

TITLE = "llama.cpp"
PRECISIONS = ("fp32", "bf16", "w8", "w4")
MODELS = ("llama1b-decode",)


def missing() -> str | None:
    absent = [name for name in ("llama_cpp", "gguf") if find_spec(name) is None]
    return f"{' and '.join(absent)} not installed" if absent else None


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    import gguf

    from bench.narrow import Narrow

    narrow = isinstance(module, Narrow)
    step = module.inside if narrow else module
    path = directory / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    block = step.blocks[0]
    writer.add_vocab_size(step.tokens.num_embeddings)
    writer.add_tokenizer_model("none")
    writer.add_context_length(step.length)
    writer.add_embedding_length(step.tokens.embedding_dim)
    writer.add_block_count(len(step.blocks))
    writer.add_feed_forward_length(block.inner)
    writer.add_head_count(block.heads)
    writer.add_head_count_kv(block.key_heads)
    writer.add_rope_dimension_count(block.dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)

    def vector(name: str, tensor: Any) -> None:
        writer.add_tensor(name, tensor.detach().float().numpy())

    def matrix(name: str, linear: Any, rows: slice = slice(None), heads: int = 0) -> None:
        data, kind = _matrix(linear, rows, heads)
        writer.add_tensor(name, data, raw_dtype=kind)

    vector("token_embd.weight", step.tokens.weight)
    for number, block in enumerate(step.blocks):
        name, width, keys = f"blk.{number}.", block.heads * block.dim, block.key_heads * block.dim
        vector(f"{name}attn_norm.weight", block.norm_1.weight)
        vector(f"{name}ffn_norm.weight", block.norm_2.weight)
        matrix(f"{name}attn_q.weight", block.qkv, slice(width), block.heads)
        matrix(f"{name}attn_k.weight", block.qkv, slice(width, width + keys), block.key_heads)
        matrix(f"{name}attn_v.weight", block.qkv, slice(width + keys, None))
        matrix(f"{name}attn_output.weight", block.out)
        matrix(f"{name}ffn_gate.weight", block.gate_up, slice(block.inner))
        matrix(f"{name}ffn_up.weight", block.gate_up, slice(block.inner, None))
        matrix(f"{name}ffn_down.weight", block.down)
    vector("output_norm.weight", step.norm.weight)
    matrix("output.weight", step.head)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _matrix(linear: Any, rows: slice, heads: int) -> tuple[Any, Any]:
    """The bytes of rows of a linear's weight and their format. With `heads`, the rows of each head are in llama.cpp's
    order, in which rotary positions turn neighbours.
    """
    import gguf
    import numpy as np
    import torch

    def ordered(tensor: Any) -> Any:
        part = tensor.detach()[rows]
        return part.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2) if heads else part

    types = gguf.GGMLQuantizationType
    if not hasattr(linear, "bits"):
        weight = ordered(linear.weight).contiguous()
        if weight.dtype == torch.bfloat16:
            return weight.view(torch.uint8).numpy(), types.BF16
        return weight.numpy(), types.F32
    numbers, scales = ordered(linear.numbers).numpy(), ordered(linear.scales).contiguous().numpy()
    groups = numbers.reshape(*scales.shape, -1)
    if linear.bits == 4:
        low, high = groups & 15, groups >> 4
        values = np.stack((low, high), -1).reshape(*scales.shape, 32)
        groups = values[..., :16] | values[..., 16:] << 4
    blocks = np.concatenate((scales[..., None].view(np.uint8), groups.view(np.uint8)), -1)
    return blocks.reshape(len(blocks), -1), types.Q4_0 if linear.bits == 4 else types.Q8_0


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import ctypes

    import llama_cpp
    import numpy as np

    token, position = (np.load(path) for path in inputs)
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    settings = llama_cpp.llama_model_default_params()
    # Other layouts of the weights. That for AMX ends the process if GCC 12 has compiled it; the others are for prompts.
    settings.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(artifact.encode(), settings)
    params = llama_cpp.llama_context_default_params()
    length = llama_cpp.llama_model_n_ctx_train(model)
    params.n_ctx = params.n_batch = params.n_ubatch = length
    params.n_threads = params.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError(f"llama.cpp cannot load {artifact}")
    memory = llama_cpp.llama_get_memory(context)
    size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def decode(values: list[int]) -> None:
        tokens = (llama_cpp.llama_token * len(values))(*values)
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, len(values))):
            raise RuntimeError("llama.cpp cannot decode")

    (prefix,), (last,) = position.tolist(), token.reshape(-1).tolist()
    decode(list(range(prefix)))

    def call() -> Any:
        # The step again, at the same position.
        llama_cpp.llama_memory_seq_rm(memory, 0, prefix, -1)
        decode([last])
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (size,))

    call.kept = quiet  # type: ignore[attr-defined]
    return call


def to_numpy(result: Any) -> list[Any]:
    return [result.reshape(1, 1, -1)]
