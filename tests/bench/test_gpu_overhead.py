"""bench.gpu_overhead measures calls: with the driver without a GPU, whose figures mean nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.gpu_overhead import compile_driver, from_c, from_python
from tests.support.archives import CompileC
from tests.support.cuda_archives import affine_archive, with_golden


def test_calls_from_c_and_python_are_timed(
    monkeypatch: pytest.MonkeyPatch, fake_driver: Path, tmp_path: Path, compile_c: CompileC
) -> None:
    monkeypatch.setenv("AOTPACK_LIBCUDA", str(fake_driver))
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "9.0,9.0")
    x = np.ones((3, 4), np.float32)
    path = with_golden(affine_archive(tmp_path / "plain.aotpack", compile_c), tmp_path / "m.aotpack", x, x)
    for figures in (from_c(compile_driver(tmp_path), path), from_python(path)):
        assert figures.keys() == {"submit", "wait"}
        assert all(0 < best <= median for best, median in figures.values())
