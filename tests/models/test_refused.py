"""Models of transformers that cannot be captured as they are: the error says why, with the line of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpack.errors import CaptureError
from aotpack.export import aot_export

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.torch

_SMALL: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
}
_DATA = "branches on a data-dependent value, which is known only at run time"
Case = tuple[Any, dict[str, Any]]


def _ids(length: int) -> dict[str, Any]:
    return {"input_ids": torch.randint(3, 40, (1, length))}


def dynamic_rope() -> Case:
    """Grows its table by the greatest position."""
    parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 16}
    config = transformers.LlamaConfig(**_SMALL, rope_parameters=parameters, use_cache=False)
    return transformers.LlamaForCausalLM(config), _ids(3)


def longformer() -> Case:
    """Asks whether any token is global."""
    model = transformers.LongformerModel(transformers.LongformerConfig(**_SMALL, attention_window=[4]))
    mask = torch.tensor([[1, 0, 0, 0, 0, 1, 0, 0]])
    return model, {**_ids(8), "global_attention_mask": mask}


def encodec() -> Case:
    """Keeps sizes of kernels in buffers, and pads by them."""
    config = transformers.EncodecConfig(
        hidden_size=8,
        num_filters=4,
        codebook_size=32,
        upsampling_ratios=[4, 2],
        target_bandwidths=[30.0],
        num_lstm_layers=1,
    )
    return transformers.EncodecModel(config), {"input_values": torch.randn(1, 1, 160)}


def qwen2_vl() -> Case:
    """Splits its tokens by the sizes of the images, which are a tensor."""
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
    config = transformers.Qwen2VLConfig(
        text_config={**_SMALL, "num_key_value_heads": 2, "use_cache": False, "rope_parameters": rope},
        vision_config={"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "patch_size": 2, "mlp_ratio": 1},
        image_token_id=45,
        video_token_id=46,
        vision_start_token_id=47,
        vision_end_token_id=48,
    )
    ids = torch.tensor([[5, 47, 45, 48, 6]])
    inputs = {
        "input_ids": ids,
        "pixel_values": torch.randn(4, 3 * 2 * 2 * 2),
        "image_grid_thw": torch.tensor([[1, 2, 2]]),
        "mm_token_type_ids": (ids == 45).long(),
    }
    return transformers.Qwen2VLForConditionalGeneration(config), inputs


@pytest.mark.parametrize(
    ("case", "line"),
    [
        (dynamic_rope, "if seq_len > max_seq_len_cached"),
        (longformer, "if is_global_attn"),
        (encodec, "if length <= max_pad"),
        (qwen2_vl, "lengths.tolist()"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_why_and_where(case: Callable[[], Case], line: str) -> None:
    model, inputs = case()
    with pytest.raises(CaptureError) as caught:
        aot_export(model.eval(), (), inputs)
    text = str(caught.value)
    assert _DATA in text
    _, _, place = text.partition("\n  at ")
    assert "transformers" in place
    assert line in place
    assert caught.value.hint
