"""Code of kernels that is made once."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

import torch
from torch._higher_order_ops import triton_kernel_wrap
from torch._subclasses.fake_tensor import FakeTensorMode

from aotpack.export.ops.cuda.gemm_kernel import gemm_kernel
from aotpack.export.ops.cuda.recurrent_kernel import recurrent_step_kernel
from aotpack.export.torch_compat.inductor.cuda.kernel_ir import kernels_read_once
from aotpack.export.torch_compat.triton.driver import triton_driver
from aotpack.targets import BY_NAME

_NAMES = ("M", "N", "K", *(f"stride_{matrix}{dim}" for matrix, dims in (("a", "zmk"), ("b", "zkn")) for dim in dims))


def _arguments(dtype: torch.dtype = torch.float16, **changes: Any) -> dict[str, Any]:
    with FakeTensorMode():
        tensors = {name: torch.empty(64, dtype=dtype) for name in ("a", "b", "bias", "residual", "out")}
    constants = {"HAS_BIAS": False, "HAS_RESIDUAL": False, "ACTIVATION": 0, "DOUBLE": False, "EVEN_K": True}
    tile = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 1, "SPLITS": 1, "PRECISION": "ieee"}
    sizes = dict.fromkeys(_NAMES, 32)
    more = {"ALPHA": 1.0, "SMALL": True, "FEW_ROWS": False, "num_warps": 4}
    return {**tensors, **sizes, **constants, **tile, **more, **changes}


def test_launches_that_are_alike_have_one_code() -> None:
    gpu = BY_NAME["cuda-sm_80"].gpu
    assert gpu is not None
    original = triton_kernel_wrap.generate_ttir
    with triton_driver(gpu), kernels_read_once():

        def code(arguments: dict[str, Any]) -> Any:
            module, names = triton_kernel_wrap.generate_ttir(gemm_kernel, arguments, {})
            assert "out" in names
            assert "num_warps" not in arguments
            return module

        first = code(_arguments())
        assert code(_arguments()) is first
        read = triton_kernel_wrap.ttir_to_functions
        assert read(first) is read(first)
        others = [_arguments(M=1), _arguments(ALPHA=2.0), _arguments(dtype=torch.float32), _arguments(HAS_BIAS=True)]
        modules = [first, *(code(other) for other in others)]
        assert len({str(module) for module in modules}) == len(modules)
    assert triton_kernel_wrap.generate_ttir is original


def test_memory_that_is_there_is_looked_at_again() -> None:
    gpu = BY_NAME["cuda-sm_80"].gpu
    assert gpu is not None
    arguments = _arguments(a=torch.empty(64, dtype=torch.float16))
    with triton_driver(gpu), kernels_read_once():
        first, second = (triton_kernel_wrap.generate_ttir(gemm_kernel, dict(arguments), {})[0] for _ in range(2))
    assert first is not second


def test_numbers_that_the_code_does_not_depend_on() -> None:
    gpu = BY_NAME["cuda-sm_80"].gpu
    assert gpu is not None
    with FakeTensorMode():
        names = ("x", "weight", "bias", "initial", "initial_cell", "out", "cell")
        tensors = {name: torch.empty(64) for name in names}
    flags = {"FIRST": False, "LSTM": True, "HAS_BIAS": True, "MATRIX": False}
    sizes = {"ROWS": 2, "HIDDEN": 8, "BLOCK_M": 2, "BLOCK_N": 1, "BLOCK_K": 8, "PRECISION": "ieee"}
    with triton_driver(gpu), kernels_read_once():

        def code(step: int, **changes: Any) -> Any:
            arguments = {**tensors, "STEP": step, "BEFORE": step - 1, **sizes, **flags, **changes}
            return triton_kernel_wrap.generate_ttir(recurrent_step_kernel, arguments, {})[0]

        assert code(1) is code(2) is code(16)
        assert code(1) is not code(1, ROWS=3)
