"""Libraries that several test files call, and how one is made."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from aotpack.building.cache import BuildCache
from tests.module_ops.harness import Driver, MakeDriver, compile_driver


@pytest.fixture(scope="session")
def make_driver(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> MakeDriver:
    """Compiles a driver with operators (compile_driver), from objects that all drivers of a run share."""

    def make(driver: str, groups: Sequence[str], kernel_flags: Sequence[str] | None = None) -> Driver:
        folder = tmp_path_factory.mktemp(driver)
        return Driver(compile_driver(BuildCache(cache_dir), folder, driver, groups, kernel_flags))

    return make


@pytest.fixture(scope="session")
def driver(make_driver: MakeDriver) -> Driver:
    """The operators on tensors of any meaning."""
    return make_driver("driver", ("scan", "sort", "index", "mask", "scatter"))


@pytest.fixture(scope="session")
def kernel_driver(make_driver: MakeDriver) -> Driver:
    """The operators over kernels."""
    groups = ("linear", "embedding", "layout", "pack", "conv", "attention", "rnn", "gemm", "embedding_bag")
    return make_driver("kernel_driver", groups)
