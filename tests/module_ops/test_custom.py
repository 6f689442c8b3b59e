"""The kernel of examples/custom_op under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch

from aotpack.export import custom_kernel
from aotpack.export.backends.cpu.custom_glue import glue
from aotpack.export.custom_ops.kernels import custom_kernels_restored, kernel_of

from .harness import INCLUDES, MODULE, ROOT

EXAMPLE = ROOT / "examples" / "custom_op"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    name = "example_custom_op_model"
    with custom_kernels_restored():
        spec = spec_from_file_location(name, EXAMPLE / "model.py")
        assert spec is not None
        assert spec.loader is not None
        # The example defines its operator for the whole process: once.
        if name not in sys.modules:
            sys.modules[name] = module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        yield sys.modules[name]


@pytest.fixture(scope="module")
def program(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver with the example's kernel."""
    folder = tmp_path_factory.mktemp("custom")
    op = torch.ops.vision.nms.default
    with custom_kernels_restored():
        found = glue(
            op, kernel_of(op) or custom_kernel("vision::nms", sources=EXAMPLE / "nms.cpp", function="vision::nms")
        )
    (folder / "glue.h").write_text(found.shim)
    (folder / "kernel.cpp").write_text(f'#include "{EXAMPLE / "nms.cpp"}"\n{found.definition}')
    sources = [Path(__file__).with_name("custom_driver.cpp"), folder / "kernel.cpp"]
    sources += [MODULE / name for name in ("custom.cpp", "tensor.cpp", "copy.cpp", "convert.cpp")]
    flags = ["-std=c++20", "-g1", "-O1", "-fopenmp", "-Wall", "-Wextra", "-Werror", f"-I{folder}", *INCLUDES]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize=vptr", "-fno-sanitize-recover=all"]
    output = folder / "driver"
    subprocess.run([os.environ.get("CXX", "g++"), *flags, *map(str, sources), "-o", str(output)], check=True)
    return output


@pytest.mark.parametrize(
    ("count", "row_stride", "score_stride"),
    [(0, 4, 1), (1, 4, 1), (40, 4, 1), (40, 9, 3), (25, 0, 1), (25, 4, 0), (300, 2, 1)],
)
def test_nms_under_sanitizers(
    program: Path, example: ModuleType, count: int, row_stride: int, score_stride: int
) -> None:
    boxes = torch.rand(count, 2) * 50
    boxes = torch.cat([boxes, boxes + torch.rand(count, 2) * 30], 1)
    scores = torch.rand(count)
    # What is written to one place twice is there as the last of them.
    held, held_scores = torch.zeros(max(1, count * 9 + 4)), torch.zeros(max(1, count * 3))
    boxes_there = held.as_strided((count, 4), (row_stride, 1))
    scores_there = held_scores.as_strided((count,), (score_stride,))
    for i in range(count):
        boxes_there[i] = boxes[i]
        scores_there[i] = scores[i]
    text = " ".join(map(str, [count, row_stride, score_stride, 0.4]))
    text += "".join(f" {value!r}" for value in [*boxes.flatten().tolist(), *scores.tolist()])
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=1", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    indices, _, error = done.stdout.partition("\n")
    # The example's implementation for eager.
    expected = torch.ops.vision.nms(boxes_there, scores_there, 0.4)
    assert [int(word) for word in indices.split()] == expected.tolist()
    assert error == "vision::nms: there must be a score for every box"
