"""Control flow that depends on data on a GPU: `python -m pytest -n 0 tests/gpu`. Skipped where there is none."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aotpack
from tests.gpu.conftest import Built
from tests.gpu.gpus import needs_gpu


def _is_too_old() -> bool:
    """Whether torch cannot build these archives, which run with any version."""
    if "AOTPACK_GPU_ARCHIVES" in os.environ or importlib.util.find_spec("torch") is None:
        return False
    return tuple(int(part) for part in importlib.metadata.version("torch").split(".")[:2]) < (2, 13)


pytestmark = [
    needs_gpu,
    pytest.mark.skipif(_is_too_old(), reason="branches and loops for GPUs are built with torch 2.13"),
]

NAMES = ("flow-branches", "flow-loops", "flow-scans", "flow-items", "flow-items-float16", "flow-generator")


def array(value: Any) -> Any:
    """An argument as the runtime accepts it."""
    torch = pytest.importorskip("torch")
    if not isinstance(value, torch.Tensor):
        return value
    return value.float().numpy().astype(ml_dtypes.bfloat16) if value.dtype == torch.bfloat16 else value.numpy()


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("graphs", [0, 8])
@pytest.mark.parametrize("name", NAMES)
def test_every_path_answers_as_eager(built: Built, name: str, graphs: int) -> None:
    torch = pytest.importorskip("torch")
    from aotpack.export.torch_compat.higher_order import functions_called
    from tests.gpu.control_flow import calls, control_flow

    torch.manual_seed(0)
    model = control_flow()[name]()[0]
    context = aotpack.load(built(name), device="cuda:0", graphs=graphs).context()
    with torch.no_grad(), functions_called():
        for call in calls(name):
            for _ in range(3):
                wanted = leaves(model(*call))
                found = leaves(context(*map(array, call)))
                for one, other in zip(found, wanted, strict=True):
                    assert one.shape == tuple(other.shape)
                    np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-4)


def test_random_numbers_differ_in_each_step(built: Built) -> None:
    context = aotpack.load(built("flow-noise"), device="cuda:0").context(seed=0)
    seen: set[float] = set()
    for sign in (1, -1, 1):
        drawn, chosen = (result.numpy() for result in context(np.full((3, 4), sign, np.float32)))
        assert ((drawn >= 0) & (drawn < 1)).all()
        assert ((chosen * sign >= 0) & (chosen * sign < 1)).all()
        seen |= {*drawn.ravel().tolist(), *np.abs(chosen).ravel().tolist()}
    assert len(seen) == 3 * 24


@pytest.mark.parametrize("graphs", [0, 8])
@pytest.mark.parametrize("name", ["flow-counted", "flow-limited"])
def test_cost_of_a_step(built: Built, name: str, graphs: int) -> None:
    context = aotpack.load(built(name), device="cuda:0", graphs=graphs).context()
    x, times = np.ones(8, np.float32), {}
    for steps in (0, 1000):
        number: Any = steps if name == "flow-counted" else np.int64(steps)
        taken = []
        for _ in range(20):
            start = time.perf_counter()
            result = context(x, number).numpy()
            taken.append(time.perf_counter() - start)
        np.testing.assert_allclose(result, 1.001**steps, rtol=1e-3)
        times[steps] = sorted(taken)[10]
    print(f"{name}, graphs={graphs}: {1e3 * (times[1000] - times[0]):.2f} us a step")
