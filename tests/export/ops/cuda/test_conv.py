"""The kernels of convolutions against torch, and the rule for their tiles."""

from __future__ import annotations

import pytest
import torch

from tests.export.ops.cuda.interpreter import Interpreter

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


def test_the_kernels_compute_convolutions(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_conv")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shared", [99 << 10, 227 << 10])
def test_tiles_fit_shared_memory(dtype: torch.dtype, shared: int) -> None:
    from aotpack.export.ops.cuda.conv_rule import choose

    for places in (1, 49, 196, 3136, 100352):
        for channels_out, taps, channels in ((1, 1, 1), (64, 49, 3), (64, 9, 64), (512, 9, 512), (2048, 1, 512)):
            tile, splits = choose(
                1, places, channels_out, taps, channels, dtype, multiprocessors=132, shared_bytes=shared
            )
            assert tile.shared_bytes(dtype.itemsize) <= shared
            assert min(tile.m, tile.n, tile.k) >= 16
            assert all(size & (size - 1) == 0 for size in (tile.m, tile.n, tile.k))
            assert 1 <= splits <= max(1, -(-taps * channels // tile.k))


def test_large_tiles_leave_registers() -> None:
    """As measured on an H100: for the first layer of a network, and beside a residual."""
    from aotpack.export.ops.cuda.conv_rule import choose

    gpu = {"multiprocessors": 132, "shared_bytes": 227 << 10}
    first, _ = choose(1, 32 * 112 * 112, 64, 49, 3, torch.float16, **gpu)
    assert (first.m, first.n, first.k, first.warps) == (128, 64, 16, 4)
    for residual, size in ((False, 128), (True, 64)):
        tile, _ = choose(1, 25088, 128, 9, 128, torch.float16, residual=residual, **gpu)
        assert (tile.m, tile.n) == (size, 128)


def test_channels_are_read_many_at_once() -> None:
    """Where the compiler cannot prove that they are aligned, it reads them one by one, three times as slow."""
    text = _assembly({"CHANNELS": 64, "stride_xc": 1, "stride_wc": 1}, num_warps=4, num_stages=3)
    assert "cp.async.cg" in text
    assert "ld.global.b16" not in text


def _assembly(constants: dict[str, int], **options: int) -> str:
    from triton import compile as compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from aotpack.export.ops.cuda.conv_kernel import conv_kernel

    dims = {
        f"{name}_{dim}": value
        for name, value in (("STEP", 1), ("PAD", 1), ("DILATION", 1), ("PERIOD", 1))
        for dim in "DHW"
    }
    values = {
        "KERNEL_D": 1,
        "KERNEL_H": 3,
        "KERNEL_W": 3,
        "DEPTH": 1,
        "DEPTH_OUT": 1,
        "SPLITS": 1,
        "ACTIVATION": 0,
        "TRANSPOSED": False,
        "PHASED": False,
        "HAS_BIAS": False,
        "HAS_RESIDUAL": False,
        "DOUBLE": False,
        "SMALL": True,
        "BLOCK_M": 128,
        "BLOCK_N": 64,
        "BLOCK_K": 64,
        "PRECISION": "ieee",
        **dims,
        **constants,
    }
    names = conv_kernel.arg_names
    types = {name: "*fp16" if name in ("x", "weight", "bias", "out") else "i32" for name in names}
    aligned = [name for name in names if name not in values and (types[name] == "*fp16" or name.startswith("stride"))]
    source = ASTSource(
        conv_kernel,
        types | dict.fromkeys(values, "constexpr"),
        {(names.index(name),): value for name, value in values.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    return str(compiled(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"])
