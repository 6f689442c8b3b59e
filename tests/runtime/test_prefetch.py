"""Weights in memory: one copy for all processes, and pages that are there before the first call."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import aotpack
from aotpack.spec import CallSpec, TensorLeaf
from tests.conftest import ROOT
from tests.support.archives import CompileC, Recipe, Weight, make_archive, tensor

COUNT = 4 << 20  # 16 MiB

# The sum of x and of all weights.
LARGE = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  const float* weights = call->constants[0].data;
  double sum = *(const float*)call->inputs[0].data;
  for (int i = 0; i < 4 << 20; ++i) sum += weights[i];
  *(float*)make(call, 0, &call->inputs[0], AOTPACK_DTYPE_FLOAT32, 4) = (float)sum;
  return AOTPACK_MODULE_OK;
}
""",
    inputs=(tensor("x", [1]),),
    outputs=(tensor("output", [1]),),
    in_spec=CallSpec((TensorLeaf(0),), ("x",)),
    out_spec=TensorLeaf(0),
    weights=(Weight("w", (0.5,) * COUNT),),
)
X = np.array([1], np.float32)
SUM = np.array([1 + COUNT / 2], np.float32)


@pytest.fixture(scope="module")
def large(compile_c: CompileC, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_archive(tmp_path_factory.mktemp("large") / "large.aotpack", LARGE, compile_c)


def resident(path: Path, process: int | str = "self", key: str = "Rss") -> int:
    """Bytes of a file's mapping in a process."""
    total, inside = 0, False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        head = line.split()
        if not head[0].endswith(":"):
            inside = line.endswith(str(path))
        elif inside and head[0] == f"{key}:":
            total += int(head[1]) * 1024
    return total


def test_pages_are_mapped_without_a_call(large: Path) -> None:
    size = large.stat().st_size
    plain = aotpack.load(large)
    assert resident(large) < size / 2
    del plain
    model = aotpack.load(large, prefetch=True)
    end = time.monotonic() + 30
    while resident(large) < size - (1 << 16) and time.monotonic() < end:
        time.sleep(0.01)
    assert resident(large) >= size - (1 << 16)
    np.testing.assert_array_equal(model(X), SUM)


def test_models_may_be_released_at_once(large: Path) -> None:
    for _ in range(50):
        aotpack.load(large, prefetch=True)
    assert resident(large) == 0


def test_copies_have_nothing_to_prefetch(large: Path) -> None:
    model = aotpack.load(large, copy=True, prefetch=True)
    np.testing.assert_array_equal(model(X), SUM)


def test_a_file_that_is_cut_while_it_is_prefetched_ends_no_process(large: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.aotpack"
    for _ in range(5):
        path.write_bytes(large.read_bytes())
        model = aotpack.load(path, prefetch=True)
        os.truncate(path, 4096)
        time.sleep(0.01)
        del model


def test_a_forked_process_releases_a_model(large: Path) -> None:
    code = f"""
import os, aotpack
for _ in range(20):
    model = aotpack.load({str(large)!r}, prefetch=True)
    child = os.fork()
    if child == 0:
        del model
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=120)


@pytest.fixture
def serving(large: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Ten processes that have called the model, and wait."""
    code = f"""
import sys, aotpack
model = aotpack.load({str(large)!r})
x = aotpack.Tensor.from_buffer(memoryview(bytes(4)), "float32", [1])
result = model(x)
print("ready", flush=True)
sys.stdin.read()
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(10)
    ]
    yield processes
    for process in processes:
        process.communicate(timeout=60)


def test_ten_processes_share_one_copy_of_the_weights(large: Path, serving: list[subprocess.Popen[str]]) -> None:
    for process in serving:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    size = COUNT * 4
    assert all(resident(large, process.pid) >= size for process in serving)
    shares = [resident(large, process.pid, "Pss") for process in serving]
    # Each has a tenth; this process may have mapped the file too.
    assert sum(shares) <= 1.05 * large.stat().st_size
    assert max(shares) <= 0.15 * size
    # Nor is there a copy elsewhere in a process.
    for process in serving:
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        private = sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Private_"))
        assert private < size
