"""Generated wrappers with aotpack's header compile at once, compute what they compute with the shim's, and let errors
pass.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import aotpack
from aotpack.building.compiler import find_compiler
from aotpack.errors import AotpackError
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.backends.cpu import compile as cpu_compile
from aotpack.export.backends.cpu import wrapper_words

pytestmark = pytest.mark.skipif(find_compiler().is_clang, reason="other compilers get the shim's headers")

RUN = "void AOTInductorModel::run_impl(AtenTensorHandle* input_handles) {"


class _Layers(torch.nn.Module):
    """Operators with lists of numbers, views, a buffer that is written to, an input that is a result."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.linear = torch.nn.Linear(8, 5)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.register_buffer("count", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.relu(self.conv(x)).mean(dim=2).transpose(1, 2)
        self.count.add_(y.sum((0, 1)))
        z, _ = self.attention(y, y, y, need_weights=False)
        return self.linear(z).softmax(-1), z[:, 1:], x, self.count.clone()


class _Lookup(torch.nn.Module):
    """Holds 4 MB when an index out of range is found."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(10, 16))
        self.linear = torch.nn.Linear(1000, 1000)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return self.linear(y + F.embedding(index, self.table).sum()) + y


def _built(module: torch.nn.Module, args: Any, path: Path, monkeypatch: pytest.MonkeyPatch, *, own: bool) -> Any:
    made, texts = cpu_compile._units, []

    def units(*given: Any) -> Any:
        # A failure is one here.
        found = [replace(unit, otherwise=()) for unit in made(*given)]
        texts.extend(unit.text for unit in found if unit.name == "wrapper.cpp")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(cpu_compile, "_units", units)
        if not own:
            patch.setattr(wrapper_words, "has_own_words", lambda text: False)
        build_archive(aot_export(module, args), path, options=BuildOptions(opt_level=1))
    assert texts and all(text.startswith(wrapper_words.OWN) == own for text in texts)
    return aotpack.load(path).context()


def test_results_are_those_of_the_shims_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 3, 9, 10)
    module = _Layers().eval()
    ours = _built(module, (x,), tmp_path / "own.aotpack", monkeypatch, own=True)
    theirs = _built(module, (x,), tmp_path / "shim.aotpack", monkeypatch, own=False)
    for _ in range(3):
        for one, two in zip(ours(x), theirs(x), strict=True):
            assert np.asarray(one).tobytes() == np.asarray(two).tobytes()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_errors_pass_through_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _Lookup().eval()
    x, good, bad = torch.randn(1000, 1000), torch.tensor([3, 9]), torch.tensor([3, 10])
    call = _built(module, (x, good), tmp_path / "m.aotpack", monkeypatch, own=True)
    expected = np.asarray(call(x, good)).tobytes()
    before = 0
    for attempt in range(60):
        with pytest.raises(AotpackError, match="index out of range"):
            call(x, bad)
        before = before or _resident()
        if attempt % 10 == 0:
            assert np.asarray(call(x, good)).tobytes() == expected
    assert _resident() - before < 60_000_000


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("auto arg0_1 = std::move(inputs[0]);", True),
        ("aoti_torch_cpu_packed_linear(arg0_1, w, std::array<int64_t, 2>{1L, 2L}.cbegin(), 2, &buf1_handle);", True),
        ("cpp_fused_add_0((float*)(buf3.data_ptr())); // std::vector<int> at::Half if (", True),
        ('f("std::string(");', False),
        ("std::vector<int64_t> sizes;", False),
        ("int64_t s0 = arg0_1_size[0]; if (s0 > 3) {", False),
        ("throw 3;", False),
        ("auto size = c10::div_floor_integer(s0, 2L);", False),
        ("cpp_fused_add_0((at::BFloat16*)(buf3.data_ptr()));", False),
        ("aoti_torch_zero_(buf0);", False),
    ],
)
def test_words(line: str, own: bool) -> None:
    assert wrapper_words.has_own_words(f"{RUN}\n    {line}\n") == own


def test_names() -> None:
    assert wrapper_words.with_own_names("std::move(a); x_std::move") == "aotpack_std::move(a); x_std::move"


def test_what_does_not_compile_with_the_own_header_gets_the_shims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cpu_compile._units

    def units(*given: Any) -> Any:
        text = "\nstatic std::vector<int> more(3);\n"
        return [
            replace(unit, text=unit.text.replace("namespace torch", text + "namespace torch", 1), key=unit.key[::-1])
            if unit.name == "wrapper.cpp" and unit.text
            else unit
            for unit in made(*given)
        ]

    monkeypatch.setattr(cpu_compile, "_units", units)
    x = torch.randn(4, 6)
    path = tmp_path / "m.aotpack"
    build_archive(aot_export(torch.nn.Linear(6, 3), (x,)), path)
    assert np.asarray(aotpack.load(path)(x)).shape == (4, 3)
