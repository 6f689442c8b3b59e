"""Quantized archives for AMX: its instructions are there, and the answers are those of other targets to the bit."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from aotpack.export import build_archive, from_onnx
from aotpack.runtime import load
from aotpack.targets import Target
from tests.export.onnx.quantized_models import Net, example
from tests.support.building import told_of_module

pytestmark = pytest.mark.skipif(Target.host().arch != "x86-64", reason="this machine compiles no x86-64 code")

TARGETS = ("x86-64-v4", "x86-64-v4-amx")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A stem of few channels, a convolution of two groups and a linear, whose depths fill no tile."""
    net = Net(2, 3, 40, 37)
    x = net.quantized("x")
    x = net.node("Conv", x, net.weight(48, 3, 7, 7), net.bias(48), strides=[2, 2], pads=[3, 3, 3, 3])
    x = net.quantized(net.node("Relu", x), 0.2)
    x = net.quantized(net.node("Conv", x, net.weight(70, 24, 3, 3), net.bias(70), pads=[1, 1, 1, 1], group=2), 0.5)
    x = net.quantized(net.node("Transpose", x, perm=[0, 2, 3, 1]), 0.5)
    model = net.model(net.node("MatMul", x, net.weight(70, 45, axis=1)))
    folder = tmp_path_factory.mktemp("int8")
    for target in TARGETS:
        build_archive(from_onnx(model), folder / f"{target}.aotpack", targets=[target])
    return {target: folder / f"{target}.aotpack" for target in TARGETS}


def test_the_instructions_are_there(archives: dict[str, Path], tmp_path: Path) -> None:
    found = {}
    for target, path in archives.items():
        text = told_of_module(path, target, tmp_path, "objdump", "-d")
        found[target] = re.search(r"\btdpbusd\b", text) is not None
    assert found == {"x86-64-v4": False, "x86-64-v4-amx": True}


@pytest.mark.parametrize("threads", [1, 3])
def test_the_answers_are_the_same(archives: dict[str, Path], threads: int) -> None:
    if not Target("x86-64-v4-amx").runs_on(Target.host()):
        pytest.skip("this machine has no AMX")
    x = example(2, 3, 40, 37)
    results = [np.asarray(load(path).context(num_threads=threads).run([x])[0]) for path in archives.values()]
    np.testing.assert_array_equal(*results)
