"""Quantized archives for 64-bit ARM, cross-compiled: on emulated processors they have the bits of this machine's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from aotpack.export import aot_export, build_archive, from_onnx
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.cpu.pipeline import CPU
from aotpack.export.passes.runner import run_passes
from aotpack.runtime import load
from aotpack.targets import Target
from tests.export.onnx.quantized_models import Net, example
from tests.support import emulated
from tests.support.building import told_of_module

SHAPE = (2, 3, 15, 14)

pytestmark = [
    pytest.mark.skipif(emulated.AARCH64_CXX is None, reason="there is no aarch64-linux-gnu-g++"),
    pytest.mark.skipif(emulated.AARCH64 is None, reason="there is no qemu-aarch64"),
]


def model() -> onnx.ModelProto:
    """A stem of few channels, a depthwise convolution with a residual, one of two groups, a pooling and a linear."""
    net = Net(*SHAPE)
    x = net.quantized("x")
    x = net.node("Conv", x, net.weight(20, 3, 5, 5), net.bias(20), strides=[2, 2], pads=[2, 2, 2, 2])
    x = net.quantized(net.node("Relu", x), 0.2)
    deep = net.node("Conv", x, net.weight(20, 1, 3, 3), net.bias(20), pads=[1, 1, 1, 1], group=20)
    x = net.quantized(net.node("Add", net.quantized(deep, 0.3), x), 0.4)
    x = net.quantized(net.node("Conv", x, net.weight(38, 10, 3, 3), net.bias(38), group=2), 0.5)
    x = net.quantized(net.node("Flatten", net.node("GlobalAveragePool", x)), 0.5)
    return net.model(net.node("MatMul", x, net.weight(38, 45, axis=1)))


# The best target of each processor of QEMU's.
PROCESSORS = {
    "cortex-a57": "aarch64",
    "neoverse-n1": "aarch64-dotprod",
    "max,sve=off": "aarch64-bf16",
    "max,sve256=on": "aarch64-sve256",
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("int8") / "model.aotpack"
    build_archive(from_onnx(model()), path, targets=[Target.host().name, *PROCESSORS.values()])
    return path


def test_the_model_is_computed_in_integers() -> None:
    program = run_passes(from_onnx(model()), (*COMMON, *CPU))
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    kernels = [name.split(".")[1] for name in called if "int8" in name]
    assert kernels == ["int8_conv"] * 3 + ["int8_linear"]


@pytest.mark.parametrize("cpu", PROCESSORS)
def test_answers_are_those_of_this_machine(archive: Path, tmp_path: Path, cpu: str) -> None:
    x = example(*SHAPE)
    expected = np.asarray(load(archive).run([x])[0])
    done = emulated.aarch64(cpu).run(archive, tmp_path, x)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == PROCESSORS[cpu]
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out0", np.float32).reshape(expected.shape), expected)


def instructions_of(path: Path, folder: Path, target: str) -> set[str]:
    """Which of those that multiply bytes are in a module."""
    code = told_of_module(path, target, folder, "aarch64-linux-gnu-objdump", "-d")
    return set(re.findall(r"\t(u?s(?:dot|mmla))\t", code))


class IntegerProduct(nn.Module):
    """A product of int8 matrices, as of linears with dynamic quantization."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.randint(-128, 128, (43, 70), dtype=torch.int8))

    def forward(self, x: Tensor) -> Tensor:
        return torch._int_mm(x, self.weight)


def test_products_of_int8_matrices_are_exact(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = IntegerProduct().eval(), torch.randint(-128, 128, (21, 43), dtype=torch.int8)
    path = tmp_path / "model.aotpack"
    build_archive(aot_export(module, (x,)), path, targets=list(PROCESSORS.values()))
    expected = (x.long() @ module.weight.long()).int().numpy()
    for cpu, target in PROCESSORS.items():
        done = emulated.aarch64(cpu).run(path, tmp_path, x.numpy())
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == target
        np.testing.assert_array_equal(np.fromfile(tmp_path / "out0", np.int32).reshape(expected.shape), expected)
    assert "smmla" in instructions_of(path, tmp_path, "aarch64-bf16")


@pytest.mark.parametrize(
    ("target", "instructions"),
    [
        ("aarch64", set()),
        ("aarch64-dotprod", {"sdot"}),
        ("aarch64-bf16", {"usdot", "usmmla"}),
        ("aarch64-sve256", {"usdot", "usmmla"}),
    ],
)
def test_the_instructions_are_there(archive: Path, tmp_path: Path, target: str, instructions: set[str]) -> None:
    found = instructions_of(archive, tmp_path, target)
    assert found >= instructions if instructions else not found


def test_a_processor_without_them_refuses_the_archive(tmp_path: Path) -> None:
    build_archive(from_onnx(model()), tmp_path / "model.aotpack", targets=["aarch64-bf16"])
    for cpu, missing in (("neoverse-n1", "i8mm, bf16"), ("cortex-a57", "atomics, asimdrdm, asimddp, i8mm, bf16")):
        refused = emulated.aarch64(cpu).run(tmp_path / "model.aotpack", tmp_path, example(*SHAPE))
        assert refused.returncode == 1
        assert f"aarch64-bf16 needs {missing} (" in refused.stderr
