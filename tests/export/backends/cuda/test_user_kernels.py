"""Triton kernels of users: captured on the CPU, compiled for GPUs, and equal to what they compute."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

import aotpack
from aotpack.errors import BuildError, CaptureError, UnsupportedOperatorError
from aotpack.export import aot_export, build_archive, custom_kernel
from aotpack.export.custom_ops.kernels import custom_kernels_restored
from tests.export.backends.cuda.conftest import Verify
from tests.gpu import user_kernels
from tests.gpu.build_archives import build
from tests.support.building import manifest_of
from tests.support.interpreted_gpu.recording import recorded_kernels

pytestmark = pytest.mark.torch


def _record(path: Path) -> Any:
    return json.loads(path.read_text())


CASES = user_kernels.user_kernels()


def test_archives_answer_as_the_kernels_do(tmp_path: Path, verify: Verify) -> None:
    with recorded_kernels(tmp_path / "kernels"):
        assert build(tmp_path, list(CASES), ["cuda-sm_90"]) == 0
    paths = sorted(tmp_path.glob("*.aotpack"))
    assert len(paths) == len(CASES)
    text = verify(tmp_path / "kernels", *paths)
    assert text.count(" launches in ") == len(CASES)
    assert " 0 launches in " not in text


def _in_place(model: Any, x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    x = (0.5 * x * scale[:7, None]).softmax(-1)
    part = 2 * (2 * x[:, :8] + scale)
    return part + 1, torch.tensor(80.0)


def _convolved(model: Any, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    y = torch.conv2d(x, weight, padding=1)
    return (2 * y).sum(1), y.flatten() + torch.arange(float(y.numel()))


EXPECTED: dict[str, Callable[..., Any]] = {
    "user-added-dynamic": lambda model, x, y: (model.linear(x) + y).relu() + 1,
    "user-added-bf16": lambda model, x, y: (model.linear(x) + y).relu() + 1,
    "user-in-place": _in_place,
    "user-tuned-dynamic": lambda model, x: (x.sin() @ model.weight.t()).tanh(),
    "user-operators-dynamic": lambda model, x, y: (2 * (x + 0.25 * y.exp())).softmax(-1),
    "user-after-convolution": _convolved,
}


@pytest.mark.parametrize("name", CASES)
def test_the_example_call_has_the_kernels_answer(name: str) -> None:
    """Which Triton's interpreter computes: compared with torch here."""
    torch.manual_seed(1)
    model, args, shapes = CASES[name]()
    program = aot_export(model, args, dynamic_shapes=shapes)
    assert program.reference is not None
    with torch.no_grad():
        expected = EXPECTED[name](model, *args)
    for value, wanted in zip(
        program.reference.outputs, expected if isinstance(expected, tuple) else (expected,), strict=False
    ):
        torch.testing.assert_close(value, wanted)


def test_the_first_configuration_that_fits_is_chosen_and_named(tmp_path: Path) -> None:
    program = aot_export(user_kernels.Tuned(), (torch.randn(33, 48),))
    report = build_archive(program, tmp_path / "tuned.aotpack", targets=["cuda-sm_90"])
    (choice,) = report.triton_configs
    assert choice.startswith("matmul_kernel for cuda-sm_90: BLOCK_M=32, BLOCK_N=32, BLOCK_K=16")
    assert choice.endswith("num_warps=4, num_stages=2 (of 3 configurations)")
    # The kernel asks for TF32 itself; the answer of the example call is that of single precision.
    manifest = manifest_of(tmp_path / "tuned.aotpack")
    assert manifest.entries[0].goldens[0].tolerance == 5e-3
    assert manifest.producer["float32_products"] == "tf32"


def test_pruning_sees_the_gpu_of_the_target(tmp_path: Path) -> None:
    def prune(configs: list[triton.Config], arguments: dict[str, Any], **_: Any) -> list[triton.Config]:
        assert arguments["x"].shape == (64,)
        assert arguments["n"] == 64
        major, _ = torch.cuda.get_device_capability()
        return [config for config in configs if config.kwargs["BLOCK"] == 2 * major]

    blocks = [triton.Config({"BLOCK": size}) for size in (64, 16, 32)]
    kernel = triton.autotune(blocks, key=["n"], prune_configs_by={"early_config_prune": prune})(user_kernels.add_kernel)

    def model(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(64, meta["BLOCK"]),)](x, x, out, x.numel())
        return out

    program = aot_export(model, (torch.randn(64),))
    # One is left: there is no choice to report.
    report = build_archive(program, tmp_path / "pruned.aotpack", targets=["cuda-sm_80"])
    assert not report.triton_configs


def test_cpus_reject_kernels_by_their_operators(tmp_path: Path) -> None:
    def model(x: Tensor) -> Tensor:
        return user_kernels.scaled_add(x, x, 2.0) + user_kernels.matmul(x, x)

    program = aot_export(model, (torch.randn(32, 32),))
    with pytest.raises(UnsupportedOperatorError) as error:
        build_archive(program, tmp_path / "cpu.aotpack", targets=["x86-64-v3"])
    text = str(error.value)
    assert "aotpack_tests.scaled_add (a Triton kernel)" in text
    assert "matmul_kernel (a Triton kernel)" in text
    assert "wrap_triton(add_kernel)" in text
    assert "custom_ops.md" in str(error.value.hint)


def test_dynamo_is_not_asked_for_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a GPU it turns them into operators of its own, which programs cannot hold."""
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: True)

    def model(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        user_kernels.add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x, out, x.numel(), BLOCK=64)
        return out[: int(x.shape[0] * 0.5)]

    rows = aotpack.Dim("rows", 1, 300)
    with pytest.raises(CaptureError, match=r"must be at least 4\n.*0\.5"):
        aot_export(model, (torch.randn(5, 24),), dynamic_shapes={"x": {0: rows}})


@triton.jit
def _beyond(x, out):
    tl.store(out + tl.arange(0, 64), tl.load(x + tl.arange(0, 64)))


def test_accesses_beyond_tensors_fail_the_capture() -> None:
    def model(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        _beyond[(1,)](x, out)
        return out

    with pytest.raises(CaptureError, match=r"_beyond.*beyond the tensors"):
        aot_export(model, (torch.randn(63),))


def test_a_written_tensor_that_shares_memory_is_rejected() -> None:
    def model(x: Tensor) -> Tensor:
        user_kernels.add_kernel[(1,)](x[:8], x, x[4:], 8, BLOCK=8)
        return x

    with pytest.raises(CaptureError, match="shares memory"):
        aot_export(model, (torch.randn(16),))


@triton_op("aotpack_tests::added_on_both", mutates_args={})
def added_on_both(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(user_kernels.add_kernel)[(triton.cdiv(x.numel(), 32),)](x, y, out, x.numel(), BLOCK=32)
    return out


@added_on_both.register_kernel("cpu")
def _(x: Tensor, y: Tensor) -> Tensor:
    # In place, as functions of users are.
    return x.clone().add_(y)


@torch.library.custom_op("aotpack_tests::doubled_by_both", mutates_args=())
def doubled_by_both(x: Tensor) -> Tensor:
    return x * 2


@doubled_by_both.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _doubled_on_gpus(x: Tensor) -> Tensor:
    out = x.clone()
    width = x.shape[1]
    wrap_triton(user_kernels.scale_rows_kernel)[(x.shape[0],)](out, None, None, width, width, 1.0, 16, "double")
    return out


def test_each_kind_of_device_has_its_implementation(tmp_path: Path, verify: Verify) -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        return torch.ops.aotpack_tests.doubled_by_both(added_on_both(x.sin(), y)).cos()

    with custom_kernels_restored(), recorded_kernels(tmp_path / "kernels"):
        custom_kernel("aotpack_tests::doubled_by_both", triton=_doubled_on_gpus)
        program = aot_export(model, (torch.randn(9, 7), torch.randn(9, 7)))
        archive = tmp_path / "both.aotpack"
        # The check runs the module for the CPU.
        report = build_archive(program, archive, targets=["x86-64-v3", "cuda-sm_90"])
    assert report.check.target == "x86-64-v3"
    verify(tmp_path / "kernels", archive)
    names = [record["name"] for record in map(_record, (tmp_path / "kernels").iterdir())]
    assert {"add_kernel", "scale_rows_kernel"} <= set(names)


def test_a_function_for_gpus_needs_an_operator_that_writes_to_nothing() -> None:
    with pytest.raises(BuildError, match="writes to an argument"):
        custom_kernel("aotpack_tests::doubled_", triton=_doubled_on_gpus)
    with pytest.raises(BuildError, match="was not defined by"):
        custom_kernel("aotpack_tests::nothing", triton=_doubled_on_gpus)
