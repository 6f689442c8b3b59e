"""TorchInductor's files: in a private folder while code is generated, and nowhere afterwards."""

from __future__ import annotations

import inspect
import os
import stat
from pathlib import Path

import pytest
import torch

from aotpack.errors import LoweringError
from aotpack.export import aot_export
from aotpack.export.backends.cpu.lower import lower
from aotpack.export.torch_compat.inductor import codegen
from aotpack.export.torch_compat.inductor.private_cache import private_cache
from aotpack.targets import Target


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder, and no other folder of TorchInductor's."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    return tmp_path


def test_torch_uses_it(temporary: Path) -> None:
    from torch._inductor import utils
    from torch._inductor.codecache import get_path, write
    from torch._inductor.runtime.cache_dir_utils import cache_dir, triton_cache_dir

    assert list(inspect.signature(utils.clear_caches).parameters) == []
    with private_cache() as folder:
        assert folder.parent == temporary
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert Path(cache_dir()) == folder
        assert Path(triton_cache_dir(0)).is_relative_to(folder)
        assert Path(get_path("some_key", "cpp")[2]).is_relative_to(folder)
        assert Path(write("some text", "cpp")[1]).is_relative_to(folder)
    assert list(temporary.iterdir()) == []
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


def test_the_users_folder_is_not_used(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = temporary / "mine"
    mine.mkdir()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(mine))
    with private_cache():
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] != str(mine)
    with pytest.raises(ZeroDivisionError), private_cache():
        raise ZeroDivisionError
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(mine)
    assert list(temporary.rglob("*")) == [mine]


def test_generating_code_leaves_nothing(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # bfloat16 makes torch ask which instructions the compiler and the processor have.
    program = aot_export(lambda x: (x.to(torch.bfloat16) @ x.to(torch.bfloat16).T).softmax(-1), (torch.randn(8, 8),))
    for path in temporary.iterdir():
        # Importing torch makes its folder, and nothing in it.
        assert path.is_dir() and not list(path.iterdir())
        path.rmdir()
    lower(program, Target.host().name)
    assert list(temporary.iterdir()) == []

    def fail(*_: object) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(codegen, "fallbacks", fail)
    with pytest.raises(LoweringError):
        lower(program, Target.host().name)
    assert list(temporary.iterdir()) == []


def test_torch_compile_works_before_and_after(temporary: Path) -> None:
    """What torch remembers between compilations does not name files that are gone."""
    x = torch.randn(64)
    for scale in (2.0, 3.0):
        compiled = torch.compile(lambda x, scale=scale: x.sin() * scale)  # type: ignore[misc]
        torch.testing.assert_close(compiled(x), x.sin() * scale)
        if scale == 2.0:
            lower(aot_export(lambda x: x.cos(), (x,)), Target.host().name)
