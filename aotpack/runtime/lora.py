"""LoRA adapters saved by PEFT: pairs of low-rank factors by the names of the modules that they change.

The tensors of an adapter are `<module>.lora_A.weight` [rank, in…] and `<module>.lora_B.weight` [out, rank]; their
product, times a scale, is added to `<module>.weight`. For an embedding they are `<module>.lora_embedding_A` [rank,
rows] and `<module>.lora_embedding_B` [columns, rank], whose product is transposed. Further tensors (`modules_to_save`)
replace those of their names. Source: https://huggingface.co/docs/peft/developer_guides/checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotpack.archive.safetensors import open_safetensors
from aotpack.errors import WeightsError, WeightsNotFoundError
from aotpack.runtime.named_tensors import by_name, raw_tensors

_PREFIX = "base_model.model."
_FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<factor>[AB])(?P<rest>(?:\.[^.]+){0,2})")
_CONFIG = "adapter_config.json"
_FILE = "adapter_model.safetensors"

# name of the weight, down, up, scale, whether the product is transposed
Delta = tuple[str, Any, Any, float, bool]


@dataclass(frozen=True)
class Config:
    """The configuration of an adapter.

    Attributes:
        alpha: the numerator of the scale.
        patterns: other numerators by the end of a module's name.
        rank_stabilized: the scale is divided by the square root of the rank instead of the rank.
        fan_in_fan_out: weights are [in, out], as in transformers' Conv1D.
    """

    alpha: float
    patterns: Mapping[str, float]
    rank_stabilized: bool
    fan_in_fan_out: bool

    def scale(self, module: str, rank: int) -> float:
        """The factor of the product of a module's low-rank factors."""
        alpha = next((a for key, a in self.patterns.items() if f".{module}".endswith(f".{key}")), self.alpha)
        return alpha / (math.sqrt(rank) if self.rank_stabilized else rank)


@dataclass(frozen=True)
class Adapter:
    """The tensors of an adapter: `names` and `tensors` replace weights, `deltas` are added to them.

    With `raw`, tensors have the form that `aotpack.runtime.named_tensors.raw_tensors` returns.
    """

    names: list[str]
    tensors: list[Any]
    deltas: list[Delta]
    raw: bool


def from_mapping(tensors: Mapping[str, Any], scale: float | None, fan_in_fan_out: bool | None) -> Adapter:
    """An adapter from arrays by name."""
    return _adapter(*by_name(tensors), raw=False, config=None, scale=scale, fan_in_fan_out=fan_in_fan_out)


def from_path(path: str | os.PathLike[str], scale: float | None, fan_in_fan_out: bool | None) -> tuple[Adapter, Any]:
    """An adapter from a directory or a file, and the files that must stay open while it is used."""
    source = Path(path)
    file = source / _FILE if source.is_dir() else source
    config = None
    if scale is None or fan_in_fan_out is None:
        config = _read_config(file.parent / _CONFIG)
    files = open_safetensors(file)
    try:
        names, tensors = raw_tensors(files)
        adapter = _adapter(names, tensors, raw=True, config=config, scale=scale, fan_in_fan_out=fan_in_fan_out)
    except BaseException:
        files.close()
        raise
    return adapter, files


def _adapter(
    names: list[str],
    tensors: list[Any],
    *,
    raw: bool,
    config: Config | None,
    scale: float | None,
    fan_in_fan_out: bool | None,
) -> Adapter:
    if scale is None and config is None:
        raise WeightsError(
            "the scale of the adapter is unknown",
            hint=f"pass scale=lora_alpha / r, or a directory with {_CONFIG}",
        )
    if fan_in_fan_out is None:
        fan_in_fan_out = config is not None and config.fan_in_fan_out
    adapter = Adapter([], [], [], raw)
    factors: dict[str, dict[str, Any]] = {}
    embeddings: set[str] = set()
    for name, tensor in zip(names, tensors, strict=True):
        name = name.removeprefix(_PREFIX)
        match = _FACTOR.fullmatch(name)
        if match is None and ".lora_" not in name:
            adapter.names.append(name)
            adapter.tensors.append(tensor)
            continue
        if match is None or match["rest"].endswith(".bias"):
            raise WeightsError(
                f"{name!r} is not supported: an adapter consists of pairs of lora_A and lora_B",
                hint="merge other kinds of adapters, including DoRA and lora_bias, into the weights first",
            )
        if match["embedding"]:
            embeddings.add(match["module"])
        pair = factors.setdefault(match["module"], {})
        if match["factor"] in pair:
            raise WeightsError(
                f"{match['module']!r} has two tensors lora_{match['factor']}: pass one adapter at a time"
            )
        pair[match["factor"]] = tensor
    if not factors:
        raise WeightsError("the adapter has no tensors lora_A and lora_B")
    for module, pair in factors.items():
        missing = {"A", "B"} - set(pair)
        if missing:
            raise WeightsError(f"{module!r} has no tensor lora_{missing.pop()}")
        transposed = module in embeddings or fan_in_fan_out
        rank = _sizes(pair["A"], raw)[:1]
        value = scale if scale is not None or config is None else config.scale(module, max(*rank, 1))
        adapter.deltas.append((f"{module}.weight", pair["A"], pair["B"], float(value or 0), transposed))
    return adapter


def _sizes(tensor: Any, raw: bool) -> tuple[int, ...]:
    return tuple(tensor[1] if raw else tensor.shape)


def _read_config(path: Path) -> Config:
    def fail(message: str) -> WeightsError:
        return WeightsError(f"{path}: {message}", hint="pass scale= and fan_in_fan_out= to omit the file")

    try:
        config = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise WeightsNotFoundError(f"no such file: {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise fail(f"cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise fail("is not an object")
    if config.get("peft_type", "LORA") != "LORA" or config.get("use_dora"):
        kind = "DoRA" if config.get("use_dora") else config["peft_type"]
        raise fail(f"an adapter of kind {kind!r}; only plain LoRA is supported")
    alpha, patterns = config.get("lora_alpha"), config.get("alpha_pattern") or {}
    if alpha is None or not _is_number(alpha):
        raise fail(f"lora_alpha is {alpha!r}")
    if not isinstance(patterns, dict) or not all(map(_is_number, patterns.values())):
        raise fail("alpha_pattern is not an object of numbers")
    for key in patterns:
        # PEFT interprets them as regular expressions.
        if not re.fullmatch(r"[\w.-]+", key):
            raise fail(f"the key {key!r} of alpha_pattern is not the end of a module's name")
    return Config(
        float(alpha), patterns, bool(config.get("use_rslora", False)), bool(config.get("fan_in_fan_out", False))
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
