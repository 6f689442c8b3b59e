"""Archives and files of weights that change while they are used; paths that are none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aotpack
from aotpack.errors import EntryNotFoundError, InputError, WeightsFileError

Archive = Callable[[str], Path]
X = np.ones((1, 4), np.float32)
Y = np.array([[2, 3, 4, 5]], np.float32)


@pytest.fixture
def served(archive: Archive, tmp_path: Path) -> Path:
    path = tmp_path / "served.aotpack"
    shutil.copyfile(archive("affine"), path)
    return path


@pytest.mark.parametrize("verify", ["code", "full"])
def test_a_copy_outlives_its_file(served: Path, verify: str) -> None:
    model = aotpack.load(served, verify=verify, copy=True)  # type: ignore[arg-type]
    os.truncate(served, 0)
    np.testing.assert_array_equal(model(X), Y)
    served.write_bytes(b"x" * 100000)
    np.testing.assert_array_equal(model(X), Y)


def test_a_file_is_replaced_by_a_rename(served: Path, tmp_path: Path) -> None:
    model = aotpack.load(served)
    (tmp_path / "next").write_bytes(b"")
    os.replace(tmp_path / "next", served)
    np.testing.assert_array_equal(model(X), Y)


def test_the_environment_says_the_default(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_mapped(copy: bool | None) -> bool:
        model = aotpack.load(served, copy=copy)
        mapped = str(served) in Path("/proc/self/maps").read_text()
        np.testing.assert_array_equal(model(X), Y)
        return mapped

    monkeypatch.delenv("AOTPACK_LOAD", raising=False)
    assert [is_mapped(copy) for copy in (None, False, True)] == [True, True, False]
    monkeypatch.setenv("AOTPACK_LOAD", "copy")
    assert [is_mapped(copy) for copy in (None, False, True)] == [False, True, False]
    monkeypatch.setenv("AOTPACK_LOAD", "always")
    with pytest.raises(InputError, match="AOTPACK_LOAD must be 'map' or 'copy', got 'always'"):
        aotpack.load(served)


def test_an_overwritten_file_ends_a_process_that_maps_it_and_no_other(served: Path) -> None:
    """What docs/deployment.md warns of, and the way out."""
    program = (
        "import os, sys, numpy as np, aotpack\n"
        "model = aotpack.load(sys.argv[1])\n"
        "os.truncate(sys.argv[1], 0)\n"
        "print(model(np.ones((1, 4), 'float32')).tolist())\n"
    )
    content = served.read_bytes()
    for mode, fine in (("copy", True), ("map", False)):
        served.write_bytes(content)
        command = [sys.executable, "-c", program, str(served)]
        ran = subprocess.run(
            command, env={**os.environ, "AOTPACK_LOAD": mode}, capture_output=True, text=True, timeout=120
        )
        assert (ran.returncode == 0) is fine, ran.stderr
        assert ran.stdout == ("[[2.0, 3.0, 4.0, 5.0]]\n" if fine else "")


@pytest.mark.parametrize("tail", ["\0", "\0b", "\0.aotpack"])
def test_null_characters(served: Path, tail: str) -> None:
    with pytest.raises(ValueError, match="null character"):
        aotpack.load(f"{served}{tail}")
    model = aotpack.load(served)
    with pytest.raises(EntryNotFoundError):
        model.entry(f"forward{tail}")


def test_a_file_of_weights_that_shrinks_while_it_is_read(archive: Archive, tmp_path: Path) -> None:
    import ml_dtypes  # noqa: F401  # numpy then has bfloat16
    from safetensors.numpy import save

    model = aotpack.load(archive("updatable"))
    arrays = {
        name: np.ones([int(size) for size in spec.shape], spec.dtype.value)  # type: ignore[call-overload]
        for name, spec in model.weights.items()
    }
    content = save(arrays)  # type: ignore[arg-type]
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            os.truncate(path, len(content) // 2)
            with path.open("r+b") as file:
                file.write(content)

    thread = threading.Thread(target=rewrite)
    thread.start()
    kinds = set()
    try:
        for _ in range(300):
            try:
                model.update_weights(path)
            except WeightsFileError as error:
                kinds.add(error.kind)
    finally:
        stop.set()
        thread.join()
    assert kinds <= {"data-truncated", "header-truncated", "too-short"}
    model.update_weights(path)
