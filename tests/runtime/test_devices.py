"""The device of a model: which can be chosen, what an unknown one raises, what C callers are told."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aotpack
from tests.support.c_api import CError, CModel, DimInfo, ValueInfo

Archive = Callable[[str], Path]
X = np.ones((1, 4), np.float32)
Y = np.array([[2, 3, 4, 5]], np.float32)
_CUDA = 2


# As on a host without a driver, which a process looks for when it first needs it.
_NO_DRIVER = {"AOTPACK_LIBCUDA": "/nonexistent/libcuda.so.1"}
_LOAD = """
import sys
import aotpack
try:
    aotpack.load(sys.argv[1], device=sys.argv[2])
except aotpack.errors.UnsupportedTargetError as error:
    print(error)
"""


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_a_model_runs_on_the_cpu(archive: Archive, device: str) -> None:
    model = aotpack.load(archive("affine"), device=device)
    assert model.device == "cpu"
    np.testing.assert_array_equal(model(X), Y)


def test_the_cpu_is_the_default(archive: Archive) -> None:
    assert aotpack.load(archive("affine")).device == "cpu"
    assert aotpack.Model(archive("affine")).device == "cpu"


@pytest.mark.parametrize(
    ("device", "name", "reason"),
    [
        ("cuda", "cuda:0", "no CUDA driver was found: /nonexistent/libcuda.so.1 cannot be opened"),
        ("cuda:3", "cuda:3", "no CUDA driver was found"),
        ("cpu:1", "cpu:1", "there is no such device; this version runs archives on cpu"),
    ],
)
def test_other_devices_are_refused_by_name(archive: Archive, device: str, name: str, reason: str) -> None:
    path = archive("affine")
    refused = subprocess.run(
        [sys.executable, "-c", _LOAD, str(path), device],
        env={**os.environ, **_NO_DRIVER},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert f"{path}: cannot run on {name}: {reason}" in refused
    assert "the archive has modules for x86-64-v3" in refused


@pytest.mark.parametrize("device", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CPU", "cuda:99999999999", None, 0])
def test_what_is_no_device(archive: Archive, device: object) -> None:
    with pytest.raises(ValueError, match="device must be the name of a device"):
        aotpack.load(archive("affine"), device=device)  # type: ignore[arg-type]


def test_what_c_callers_are_told(archive: Archive) -> None:
    model = CModel(archive("affine"))
    try:
        (info,) = model.inputs()
        assert info.struct_size == ctypes.sizeof(ValueInfo)
        assert (info.name, info.rank, info.mutated, info.number) == (b"x", 2, False, 0)
        assert (info.device_type, info.device_id) == (1, 0)
        batch, columns = (info.dims[axis].contents for axis in range(2))
        assert batch.struct_size == columns.struct_size == ctypes.sizeof(DimInfo)
        assert batch.name == b"batch"
        assert batch.multiplier == batch.multiple_of == 1
        assert (columns.name, columns.size) == (None, 4)
    finally:
        model.close()


def test_devices_and_streams_in_c(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTPACK_LIBCUDA", _NO_DRIVER["AOTPACK_LIBCUDA"])
    with pytest.raises(CError, match="cannot run on cuda:1: no CUDA driver was found") as refused:
        CModel(archive("affine"), (_CUDA, 1))
    assert refused.value.code == "UNSUPPORTED_TARGET"
    model = CModel(archive("affine"), (0, 0))
    try:
        model.set_stream(None)
        model.synchronize()
        with pytest.raises(CError, match="the stream must be NULL") as no_stream:
            model.set_stream(64)
        assert no_stream.value.code == "INVALID_ARGUMENT"
        np.testing.assert_array_equal(model.run("forward", [X])[0], Y)
    finally:
        model.close()
