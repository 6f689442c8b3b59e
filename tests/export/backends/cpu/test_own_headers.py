"""Generated kernels with aotpack's headers compute what they compute with torch's, bit for bit, and compile at once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import aotpack
from aotpack.building.compiler import find_compiler
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.backends.cpu import compile as cpu_compile
from aotpack.export.backends.cpu import kernel_source, kernel_words, toolchain
from aotpack.targets import Target

TARGETS = [name for name in ("x86-64-v3", "x86-64-v4") if Target(name).runs_on(Target.host())]

pytestmark = pytest.mark.skipif(
    not TARGETS or find_compiler().is_clang, reason="the headers are for GCC and vectors of x86-64"
)

_GENERATOR = torch.Generator().manual_seed(0)
# More than a few vectors, and a tail.
_SIZE = 1003


def _floats() -> torch.Tensor:
    edges = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, -1e-40, 1e-8, 88.0, -104.0, 3e38, -3e38]
    x = torch.randn(_SIZE, generator=_GENERATOR) * 4
    x[: len(edges)] = torch.tensor(edges)
    return x[torch.randperm(_SIZE, generator=_GENERATOR)]


X, Y = _floats(), _floats()
FINITE = X.nan_to_num(0).clamp(-60, 60)
ROWS = (torch.randn(37, 61, generator=_GENERATOR) * 4).clamp(-9, 9)
LONG = torch.randn(1, 8, 40_001, generator=_GENERATOR)
FIRST, SECOND = (torch.randint(-5, 5, (_SIZE,), generator=_GENERATOR) for _ in range(2))
PLACES = torch.randint(0, 37, (50,), generator=_GENERATOR)
BELOW = torch.arange(61)[None] > torch.arange(37)[:, None]

# Functions of many results: what they call becomes few kernels.
CASES: dict[str, tuple[Callable[..., tuple[torch.Tensor, ...]], tuple[torch.Tensor, ...]]] = {
    "arithmetic": (lambda x, y: (x + y, x - y, x * y, x / y, -x, x.abs(), x.reciprocal()), (X, Y)),
    "comparisons": (
        lambda x, y: (
            *(torch.where(x < y, x, y), torch.where(x <= y, x * 2, y), torch.where(x != y, x, y * 3)),
            *(torch.maximum(x, y), torch.minimum(x, y), x == y, x >= y, (x > y) & (x != y) | (x < 0), ~(x > y)),
        ),
        (X, Y),
    ),
    "limits": (
        lambda x, y: (
            *(x.clamp_min(0.5), x.clamp_max(0.25), x.clamp(-1, 2), torch.relu(y), F.relu6(x), F.hardswish(x)),
            *(F.leaky_relu(x), F.hardsigmoid(y)),
        ),
        (X, Y),
    ),
    "functions": (
        lambda x: (
            *(x.exp(), x.expm1(), x.abs().log(), x.abs().log1p(), x.sin(), x.cos(), x.tanh(), x.erf()),
            *(x.abs().sqrt(), x.abs().rsqrt()),
        ),
        (X,),
    ),
    "activations": (
        lambda x: (
            *(F.silu(x), F.gelu(x), F.gelu(x, approximate="tanh"), x.sigmoid(), F.softplus(x), F.elu(x)),
            F.mish(x),
        ),
        (FINITE,),
    ),
    "softmax": (lambda rows: (rows.softmax(1), rows.softmax(0), rows.log_softmax(1)), (ROWS,)),
    "reductions": (
        lambda rows: (rows.sum(1), rows.sum(0), rows.amax(1), rows.amin(1), rows.amax(0), rows.mean(), rows.sum()),
        (ROWS,),
    ),
    "norms": (lambda rows: (F.layer_norm(rows, (61,)), F.group_norm(rows[None], 1), rows.var(1)), (ROWS,)),
    # A cascade of chunks of 4096 values of each lane.
    "long norms": (lambda x: (F.group_norm(x, 1),), (LONG,)),
    "integers": (
        lambda i, j: (
            *(i + j, i * j, i - j, torch.where(i < j, i, j), i.clamp(-2, 3), torch.maximum(i, j), -i, i.abs()),
            *((i == j) & (i > 0), i != 0, (i > 0).float(), i & j, i | j),
        ),
        (FIRST, SECOND),
    ),
    "conversions": (
        lambda i, x: (
            *(i.float(), x * i, (x > 0).long(), i.to(torch.int32), (i > 0).to(torch.int32), x.double() * 2.5),
            (x.nan_to_num(0).clamp(-1e6, 1e6)).to(torch.int32),
        ),
        (FIRST, X),
    ),
    "indices": (lambda rows, places: (rows[places], F.embedding(places, rows), rows[places] + 1), (ROWS, PLACES)),
    "windows": (
        lambda rows: (
            *(F.pad(rows, (3, 5), value=2.0), torch.cat([rows, rows * 2], 1), F.max_pool2d(rows[None], 3, 2, 1)),
            *(F.avg_pool2d(rows[None], 2), rows.flip(1), torch.tril(rows), rows.masked_fill(BELOW, -1.0)),
        ),
        (ROWS,),
    ),
    "sizes": (
        lambda rows: (
            torch.arange(61)[None] * rows,
            F.interpolate(rows[None, None], scale_factor=2.0),
            F.interpolate(rows[None, None], scale_factor=2.0, mode="bilinear"),
        ),
        (ROWS,),
    ),
}


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def _results(case: str, target: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, own: bool) -> tuple[Any, str]:
    """The outputs of the case's archive, and the source of its kernels."""
    function, args = CASES[case]
    texts: list[str] = []
    made = cpu_compile._units

    def units(*given: Any) -> Any:
        # A failure is one here.
        found = [replace(unit, otherwise=()) for unit in made(*given)]
        texts.extend(unit.text or "" for unit in found if unit.name.startswith("kernels"))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(cpu_compile, "_units", units)
        if not own:
            patch.setattr(kernel_words, "own_header", lambda kernel: None)
        path = folder / f"{own}.aotpack"
        build_archive(aot_export(_Function(function), args), path, targets=[target], options=BuildOptions(opt_level=2))
    found = aotpack.load(path)(*args)
    return found if isinstance(found, (tuple, list)) else (found,), "\n".join(texts)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_torchs_headers(
    case: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, text = _results(case, target, tmp_path, monkeypatch, own=True)
    assert kernel_words.OWN in text or kernel_words.OWN_FUNCTIONS in text
    theirs, other = _results(case, target, tmp_path, monkeypatch, own=False)
    assert kernel_words.OWN not in other and kernel_source.PREFIX in other
    for one, two in zip(ours, theirs, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()


def test_more_than_they_have_takes_torchs(tmp_path: Path) -> None:
    kernel = 'extern "C" void cpp_fused_a_0(float* out_ptr0) { out_ptr0[0] = calc_erfinv(out_ptr0[0]); }'
    plain = 'extern "C" void cpp_fused_b_0(float* out_ptr0) { out_ptr0[0] = std::sqrt(out_ptr0[0]); }'
    units = kernel_source.translation_units([kernel, plain], 1000, own_headers=True)
    assert [unit.partition("\n")[0] for unit in units] == [kernel_source.PREFIX, kernel_words.OWN]
    assert "aotpack_std::sqrt" in units[1] and "std::" not in units[0]
    assert len(kernel_source.translation_units([kernel, plain], 1000)) == 1


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("tmp0 = tmp1.exp();", kernel_words.OWN_FUNCTIONS),
        ("tmp0 = tmp1.sqrt();", kernel_words.OWN_FUNCTIONS),
        ("tmp0 = std::sqrt(tmp1); // not exp", kernel_words.OWN),
        ("tmp0 = at::vec::Vectorized<float>(1e-12f);", kernel_words.OWN),
        ("tmp0 = at::vec::Vectorized<at::BFloat16>(tmp1);", None),
        ("tmp0 = tmp1.lgamma();", None),
    ],
)
def test_header(text: str, header: str | None) -> None:
    assert kernel_words.own_header(text) == header


@pytest.mark.parametrize("header", [kernel_words.OWN, kernel_words.OWN_FUNCTIONS])
@pytest.mark.parametrize("flags", [[], ["-DAOTPACK_TORCH_VECTORS"]])
def test_kernels_compile_with_either(header: str, flags: list[str], tmp_path: Path) -> None:
    source = tmp_path / "kernel.cpp"
    text = "at::vec::Vectorized<float>::loadu(in_ptr0, 3).abs().store(out_ptr0, 3)"
    source.write_text(
        f"{header}\nvoid f(const float* in_ptr0, float* out_ptr0) {{ {text}; aotpack_std::sqrt(2.0f); }}\n"
    )
    command = [*find_compiler().command, *toolchain.generated_flags(TARGETS[0], optimize="-O1"), *flags]
    done = subprocess.run([*command, "-c", str(source), "-o", str(tmp_path / "o")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
