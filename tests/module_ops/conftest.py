from __future__ import annotations

import pytest

from tests.module_ops.harness import Driver, compile_driver


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(compile_driver(tmp_path_factory.mktemp("module_ops")))
