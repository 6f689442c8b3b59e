"""Launches of kernels of this project that libraries of NVIDIA's can do instead.

The function that launches a kernel asks the library first (csrc/module/device/<provider>.h). Which launches these are
is decided here, when code is generated: those for which the library computes the same, and is not the slower one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from aotpack.export.ops.activations import ACTIVATIONS
from aotpack.export.ops.cuda.conv_kernel import conv_kernel
from aotpack.export.ops.cuda.gemm_kernel import gemm_kernel
from aotpack.export.ops.cuda.gemm_tma_kernel import gemm_tma_kernel
from aotpack.export.ops.cuda.gpu import input_precision

_NONE, _RELU, _GELU_TANH = (ACTIVATIONS[name][0] for name in ("none", "relu", "gelu_tanh"))


@dataclass(frozen=True)
class Attempt:
    """What the function that launches a kernel tries first.

    Attributes:
        provider: the library.
        call: a C++ expression over the parameters of the kernel and `grid_0` to `grid_2`: whether the library has got
            the work.
    """

    provider: str
    call: str


def attempt(
    kernel: Any, arguments: Mapping[str, Any], dtype: torch.dtype, providers: Collection[str]
) -> Attempt | None:
    """How one of `providers` does a launch; None if none does.

    Args:
        kernel: a function with `triton.jit`.
        arguments: of the launch, by the names of the parameters; what is not constant may be anything.
        dtype: that of what the kernel writes.
        providers: the libraries that may be asked.
    """
    for function, provider, call in _ATTEMPTS:
        if function is kernel and provider in providers:
            text = call(arguments, dtype)
            return None if text is None else Attempt(provider, text)
    return None


def _product(arguments: Mapping[str, Any], dtype: torch.dtype) -> str | None:
    # The parts of divided sums are what is fused with the code that reads them.
    if arguments["SPLITS"] != 1:
        return None
    a = "aotpack::module::cublaslt::matrices(a, stride_az, stride_am, stride_ak)"
    b = "aotpack::module::cublaslt::matrices(b, stride_bz, stride_bk, stride_bn)"
    return _compute_product(a, b, "grid_1", arguments, dtype)


def _tma_product(arguments: Mapping[str, Any], dtype: torch.dtype) -> str | None:
    b = f"aotpack::module::cublaslt::matrices(b){'.transposed()' if arguments['TRANSPOSED'] else ''}"
    return _compute_product("aotpack::module::cublaslt::matrices(a)", b, "1", arguments, dtype)


def _compute_product(a: str, b: str, batch: str, arguments: Mapping[str, Any], dtype: torch.dtype) -> str | None:
    alpha, activation = float(arguments["ALPHA"]), arguments["ACTIVATION"]
    if not _multiplies(dtype) or not math.isfinite(alpha) or not _has_activation(activation, dtype):
        return None
    return _call(
        "cublaslt",
        {
            "a": a,
            "b": b,
            "bias": "bias" if arguments["HAS_BIAS"] else "nullptr",
            "residual": "residual" if arguments["HAS_RESIDUAL"] else "nullptr",
            "out": "out",
            "batch": batch,
            "m": "M",
            "n": "N",
            "k": "K",
            "alpha": repr(alpha),
            "activation": str(activation),
            "tf32": _tf32(dtype),
        },
    )


def _convolution(arguments: Mapping[str, Any], dtype: torch.dtype) -> str | None:
    transposed, activation = arguments["TRANSPOSED"], arguments["ACTIVATION"]
    if arguments["SPLITS"] != 1 or arguments["DOUBLE"] or not _multiplies(dtype):
        return None
    if transposed and (arguments["HAS_BIAS"] or arguments["HAS_RESIDUAL"] or activation != _NONE):
        return None
    if activation not in (_NONE, _RELU):
        return None
    phases = math.prod(arguments[f"STEP_{dim}"] for dim in "DHW") if arguments["PHASED"] else 1
    first, second = ("stride_wc", "stride_wo") if transposed else ("stride_wo", "stride_wc")

    def dims(name: str) -> str:
        return "{" + ", ".join(str(arguments[f"{name}_{dim}"]) for dim in "DHW") + "}"

    return _call(
        "cudnn",
        {
            "x": "x",
            "weight": "weight",
            "bias": "bias" if arguments["HAS_BIAS"] else "nullptr",
            "residual": "residual" if arguments["HAS_RESIDUAL"] else "nullptr",
            "out": "out",
            "places": "ALL_PLACES",
            "channels": str(arguments["CHANNELS"]),
            "channels_out": "CHANNELS_OUT",
            "groups": f"grid_1 / {phases}",
            "sizes": "{DEPTH, HEIGHT, WIDTH}",
            "sizes_out": "{DEPTH_OUT, HEIGHT_OUT, WIDTH_OUT}",
            "kernel": dims("KERNEL"),
            "x_strides": "{stride_xn, stride_xc, stride_xd, stride_xh, stride_xw}",
            "weight_strides": f"{{{first}, {second}, stride_wd, stride_wh, stride_ww}}",
            "steps": dims("STEP"),
            "pads": dims("PAD"),
            "dilations": dims("DILATION"),
            "is_transposed": str(bool(transposed)).lower(),
            "activation": str(activation),
            "tf32": _tf32(dtype),
        },
    )


def _call(provider: str, fields: Mapping[str, str]) -> str:
    given = ", ".join(f".{name} = {value}" for name, value in fields.items())
    return f"aotpack::module::{provider}::compute({{{given}}})"


def _tf32(dtype: torch.dtype) -> str:
    return str(input_precision(dtype) == "tf32").lower()


def _multiplies(dtype: torch.dtype) -> bool:
    """Whether libraries are at least as fast with products of this dtype: without tensor cores, they take longer than
    kernels that multiply three pairs of numbers in TF32.
    """
    return input_precision(dtype) != "tf32x3"


def _has_activation(activation: int, dtype: torch.dtype) -> bool:
    """Whether cuBLASLt applies it: its GELU has the precision of halves."""
    if activation == _GELU_TANH:
        return dtype in (torch.float16, torch.bfloat16)
    return activation in (_NONE, _RELU)


_Call = Callable[[Mapping[str, Any], torch.dtype], str | None]
# Kernels with the library that does the same, and how it is called.
_ATTEMPTS: tuple[tuple[Any, str, _Call], ...] = (
    (gemm_kernel, "cublaslt", _product),
    (gemm_tma_kernel, "cublaslt", _tma_product),
    (conv_kernel, "cudnn", _convolution),
)
