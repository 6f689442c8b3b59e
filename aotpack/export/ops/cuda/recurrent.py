"""`aotpack::cuda_lstm_layer` and `aotpack::cuda_gru_layer`: recurrent layers, by a kernel of this project.

The products of the inputs of all steps are one product. A launch for each step adds that of the state and computes the
next state; it reads the weights at the speed of the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op

from aotpack.export.ops.cuda.block_sizes import power_of_two
from aotpack.export.ops.cuda.gpu import input_precision, uses_tf32
from aotpack.export.ops.cuda.launch import Launch, Launcher, launch
from aotpack.export.ops.cuda.recurrent_kernel import recurrent_step_kernel
from aotpack.export.symbolic_shapes.hints import size_hint
from aotpack.export.torch_compat.operators import OpOverload

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class StepTile:
    """How many rows and units a block computes, how many elements it sums at a time, and its warps; `matrix`: by
    tensor cores.
    """

    m: int
    n: int
    k: int
    warps: int
    matrix: bool


# Fitted on an H100 with bench/recurrent.py. Rows up to which half precision is multiplied without tensor cores, and
# rows of a block then; elements that a block of one warp sums at once, of each gate.
_FEW_ROWS = 4
_MOST_ROWS = 8
_ELEMENTS = 1024
_MATRIX = StepTile(16, 16, 64, 2, matrix=True)
# Rows from which single precision without tensor cores is slower than products of whole matrices.
_MANY_ROWS = 32


def supports(rows: int, dtype: torch.dtype) -> bool:
    """Whether the kernel is faster than a product and what comes after it, for about so many rows."""
    return dtype != torch.float32 or uses_tf32(dtype) or rows <= _MANY_ROWS


def choose(rows: int, hidden: int, dtype: torch.dtype) -> StepTile:
    """A static rule: without tensor cores, a warp or two compute a unit."""
    if rows > _FEW_ROWS and (dtype != torch.float32 or uses_tf32(dtype)):
        return _MATRIX
    m = min(power_of_two(rows), _MOST_ROWS)
    warps = 2 if m == _MOST_ROWS else 1
    return StepTile(m, 1, min(power_of_two(hidden), warps * _ELEMENTS // m), warps, matrix=False)


@triton_op("aotpack::cuda_lstm_layer", mutates_args={})
def cuda_lstm_layer(
    x: Tensor, weight: Tensor, bias: Tensor | None, h0: Tensor, c0: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """A direction of a layer of torch.nn.LSTM.

    Args:
        x: [steps, batch, 4 * hidden], the products of the inputs with their weights, and the bias.
        weight: [4 * hidden, hidden], of the state.
        bias: [4 * hidden], of the state.
        h0, c0: [batch, hidden], the state before the first step.
        reverse: whether the last step is computed first.

    Returns:
        The results of the steps, [steps, batch, hidden], and the state after the last one, [batch, hidden] each. Sums
        and the cell's state are of single precision.
    """
    return lstm_layer(x, weight, bias, h0, c0, reverse, launch)


@triton_op("aotpack::cuda_gru_layer", mutates_args={})
def cuda_gru_layer(x: Tensor, weight: Tensor, bias: Tensor | None, h0: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
    """A direction of a layer of torch.nn.GRU.

    Args:
        x: [steps, batch, 3 * hidden], the products of the inputs with their weights, and the bias.
        weight: [3 * hidden, hidden], of the state.
        bias: [3 * hidden], of the state.
        h0: [batch, hidden], the state before the first step.
        reverse: whether the last step is computed first.

    Returns:
        The results of the steps, [steps, batch, hidden], and the state after the last one, [batch, hidden].
    """
    return gru_layer(x, weight, bias, h0, reverse, launch)


def lstm_layer(
    x: Tensor, weight: Tensor, bias: Tensor | None, h0: Tensor, c0: Tensor, reverse: bool, launcher: Launcher
) -> tuple[Tensor, Tensor, Tensor]:
    """`cuda_lstm_layer`, with the function that launches kernels."""
    cell = torch.empty_like(h0, dtype=torch.float32, memory_format=torch.contiguous_format)
    out = _steps(x, weight, bias, h0, c0, cell, reverse, launcher)
    return out, _last(out, reverse), cell.to(c0.dtype, copy=True)


def gru_layer(
    x: Tensor, weight: Tensor, bias: Tensor | None, h0: Tensor, reverse: bool, launcher: Launcher
) -> tuple[Tensor, Tensor]:
    """`cuda_gru_layer`, with the function that launches kernels."""
    out = _steps(x, weight, bias, h0, None, None, reverse, launcher)
    return out, _last(out, reverse)


def _steps(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor | None,
    cell: Tensor | None,
    reverse: bool,
    launcher: Launcher,
) -> Tensor:
    steps, rows, hidden = x.shape[0], x.shape[1], weight.shape[1]
    tile = choose(size_hint(rows), hidden, x.dtype)
    weight = weight.contiguous()
    out = x.new_empty((steps, rows, hidden))
    # A parameter that a step does not read gets a tensor that is there: TorchInductor would make others for each step.
    shared = {
        "x": x.contiguous(),
        "weight": weight,
        "bias": weight if bias is None else bias.contiguous(),
        "out": out,
        "cell": weight if cell is None else cell,
        "ROWS": rows,
        "HIDDEN": hidden,
        "LSTM": cell is not None,
        "HAS_BIAS": bias is not None,
        "MATRIX": tile.matrix,
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
        "PRECISION": input_precision(x.dtype),
        "num_warps": tile.warps,
    }
    initial = {"initial": h0.contiguous(), "initial_cell": weight if c0 is None else c0.contiguous()}
    none = {"initial": weight, "initial_cell": weight}
    grid: Any = ((hidden + tile.n - 1) // tile.n, (rows + tile.m - 1) // tile.m)
    order = list(reversed(range(steps)) if reverse else range(steps))
    for before, step in zip([order[0], *order], order, strict=False):
        first = step == order[0]
        places = {"STEP": step, "BEFORE": before, "FIRST": first}
        launcher(Launch(recurrent_step_kernel, grid, shared | (initial if first else none) | places))
    return out


def _last(out: Tensor, reverse: bool) -> Tensor:
    return out[0 if reverse else -1].clone()


LSTM: OpOverload = torch.ops.aotpack.cuda_lstm_layer.default
GRU: OpOverload = torch.ops.aotpack.cuda_gru_layer.default
