from __future__ import annotations

import pytest

from tests.module_ops.harness import Driver, compile_driver


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """The operators on tensors of any meaning."""
    groups = ("scan", "sort", "index", "mask", "scatter")
    return Driver(compile_driver(tmp_path_factory.mktemp("module_ops"), "driver", groups))


@pytest.fixture(scope="session")
def kernel_driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """The operators over kernels, which note their calls (csrc/module/trace.h)."""
    groups = ("linear", "embedding", "layout", "pack", "conv", "attention", "rnn", "gemm", "embedding_bag")
    folder = tmp_path_factory.mktemp("kernel_ops")
    return Driver(compile_driver(folder, "kernel_driver", groups, ["AOTPACK_TRACE"]))
