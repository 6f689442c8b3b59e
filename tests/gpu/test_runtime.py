"""The runtime on a GPU: `python -m pytest -n 0 tests/gpu`. Skipped where there is none."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import aotpack
from aotpack.errors import UnsupportedTargetError
from tests.gpu.gpus import CAPABILITIES, needs_gpu
from tests.gpu.kernels import cubin, find_ptxas, ptx
from tests.support.archives import CompileC
from tests.support.cuda_archives import affine_archive, mutate_archive

W = np.array([1, 2, 3, 4], np.float32)
X = np.arange(8, dtype=np.float32).reshape(2, 4)


CAPABILITY = CAPABILITIES[0] if CAPABILITIES else None
pytestmark = needs_gpu


@pytest.fixture
def from_ptx(tmp_path: Path, compile_c: CompileC) -> aotpack.Model:
    """y = 3 * x + w from the PTX, of a target that no device but an 8.x runs as machine code."""
    assets = {"affine.cubin": b"not code", "affine.ptx": ptx("affine")}
    if CAPABILITY is not None and CAPABILITY[0] == 8:
        pytest.skip("this device runs the cubin")
    return aotpack.load(affine_archive(tmp_path / "m.aotpack", compile_c, assets, "cuda-sm_80"), device="cuda:0")


def test_ptx_of_an_older_target(from_ptx: aotpack.Model) -> None:
    assert from_ptx.target == "cuda-sm_80"
    np.testing.assert_array_equal(from_ptx(X).numpy(), 3 * X + W)


@pytest.mark.skipif(CAPABILITY != (9, 0) or find_ptxas() is None, reason="needs capability 9.0 and ptxas")
def test_machine_code(tmp_path: Path, compile_c: CompileC) -> None:
    assets = {"affine.cubin": cubin("affine", "sm_90", tmp_path), "affine.ptx": b""}
    model = aotpack.load(affine_archive(tmp_path / "m.aotpack", compile_c, assets), device="cuda:0")
    np.testing.assert_array_equal(model(X).numpy(), 2 * X + W)


@pytest.mark.skipif(CAPABILITY != (9, 0) or find_ptxas() is None, reason="needs capability 9.0 and ptxas")
def test_inputs_that_are_written_to_and_state(tmp_path: Path, compile_c: CompileC) -> None:
    path = mutate_archive(tmp_path / "m.aotpack", compile_c, cubin("increment", "sm_90", tmp_path))
    context = aotpack.load(path, device="cuda:0").context()
    x = np.zeros((4, 2), np.float32)
    view, total = context(x[:, 0])
    np.testing.assert_array_equal(x, [[1, 0]] * 4)
    assert total.tolist() == [101]
    context(view)
    assert view.tolist() == [2, 2, 2, 2]
    state = context.state()
    context.reset()
    assert context(view)[1].tolist() == [101]
    context.load_state(state)
    assert context(view)[1].tolist() == [103]


def test_layouts(from_ptx: aotpack.Model) -> None:
    wide = np.arange(4000, dtype=np.float32).reshape(4, 1000)
    np.testing.assert_array_equal(from_ptx(wide.T).numpy(), 3 * wide.T + W)
    far = from_ptx(np.ascontiguousarray(wide.T))
    out = np.zeros((4, 1000), np.float32)
    from_ptx.run([far], out=[out.T])
    np.testing.assert_array_equal(out.T, 3 * (3 * wide.T + W) + W)


def test_wrong_archives_and_devices(from_ptx: aotpack.Model) -> None:
    with pytest.raises(UnsupportedTargetError, match="there is no cuda:99"):
        aotpack.load(from_ptx.path, device="cuda:99")
    with pytest.raises(UnsupportedTargetError, match="needs a CUDA device"):
        aotpack.load(from_ptx.path)


def test_threads_and_steady_memory(from_ptx: aotpack.Model) -> None:
    def check(value: int) -> bool:
        x = np.full((1 + value % 50, 4), value, np.float32)
        return bool((from_ptx(x).numpy() == 3 * x + W).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(check, range(20000)))


def test_torch_tensors_on_a_side_stream(from_ptx: aotpack.Model) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch was built without CUDA")
    weight = torch.tensor(W, device="cuda")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for round_ in range(200):
                x = torch.randn(1 << 16, 4, device="cuda") + round_
                y = from_ptx(x)
                assert y.device == x.device
                z = y * 2 + from_ptx(y)
                expected = 3 * x + weight
                torch.testing.assert_close(z, expected * 2 + 3 * expected + weight)
    strided = torch.randn(4, 300, device="cuda").T
    torch.testing.assert_close(from_ptx(strided), 3 * strided + weight)
    out = torch.zeros(300, 4, device="cuda")
    assert from_ptx.run([strided], out=[out])[0] is out
    torch.testing.assert_close(out, 3 * strided + weight)
    host = torch.randn(5, 4)
    np.testing.assert_allclose(from_ptx(host).numpy(), 3 * host.numpy() + W, rtol=1e-6)


def test_cost_of_a_call(from_ptx: aotpack.Model) -> None:
    far = from_ptx(X)
    for _ in range(100):
        far_out = from_ptx(far)
    times = []
    for _ in range(2000):
        start = time.perf_counter()
        far_out = from_ptx(far)
        times.append(time.perf_counter() - start)
    print(f"a call with its wait: p50 {1e6 * sorted(times)[1000]:.1f} us")
    np.testing.assert_allclose(far_out.numpy(), 3 * (3 * X + W) + W)
