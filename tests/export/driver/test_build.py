"""Builds as a whole: contents of an archive, reproducibility, the cache, refusals, state, killed and shared builds."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import aotpack
from aotpack.building.compiler import Compiler, find_compiler
from aotpack.errors import BuildError, ExecutionError, UnsupportedTargetError
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.export.conftest import Build, assert_close
from tests.support.warm_python import warm_python


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(100, 32)
        self.conv = nn.Conv1d(32, 48, 3, padding=1)
        self.head = nn.Linear(48, 10)

    def forward(self, ids: Tensor) -> Tensor:
        x = torch.relu(self.conv(self.embed(ids).transpose(1, 2))).mean(-1)
        return self.head(x).softmax(-1)


IDS = torch.arange(24).reshape(2, 12)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.aotpack"
    program = aot_export(Small().eval(), (IDS,), dynamic_shapes={"ids": {0: Dim("batch", max=1000)}})
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    return path


def module_bytes(path: Path, target: str) -> bytes:
    from aotpack.archive import ArchiveReader

    with ArchiveReader(path) as reader:
        return bytes(reader.read(f"modules/{target}/forward.so"))


def test_a_module_exports_one_symbol_and_needs_libc_and_libm_alone(small: Path, tmp_path: Path) -> None:
    target = aotpack.load(small).manifest.entries[0].variants[0].modules[0].target
    so = tmp_path / "module.so"
    so.write_bytes(module_bytes(small, target))
    symbols = subprocess.run(
        ["readelf", "--dyn-syms", "-W", str(so)], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in symbols.splitlines() if re.match(r"\s*\d+:", line)]
    defined = [row[7] for row in rows if len(row) > 7 and row[6] != "UND" and row[4] in ("GLOBAL", "WEAK")]
    undefined = [row[7] for row in rows if len(row) > 7 and row[6] == "UND"]
    assert defined == ["aotpack_module_query"]
    assert not [name for name in undefined if "aoti" in name or "torch" in name or "Sleef" in name or "_ZN" in name]
    versions = {name.partition("@")[2].split("_")[0] for name in undefined if "@" in name}
    openmp = find_compiler().is_clang
    assert versions <= {"GLIBC", *(["OMP"] if openmp else [])}
    dynamic = subprocess.run(["readelf", "-d", str(so)], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    assert {re.sub(r"[-.].*", "", name) for name in needed} <= {"libc", "libm", "ld", *(["libomp"] if openmp else [])}
    assert "debug" not in subprocess.run(["readelf", "-S", str(so)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("target", "register"), [("x86-64-v4", "zmm"), ("x86-64-v3", "ymm")])
def test_generated_code_is_vectorized(target: str, register: str, tmp_path: Path, cache_dir: Path) -> None:
    path = tmp_path / "model.aotpack"
    program = aot_export(lambda x: (x.exp() + x.tanh()).softmax(-1), (torch.randn(64, 256),))
    build_archive(program, path, targets=[target], options=BuildOptions(cache_dir=cache_dir, opt_level=3))
    so = tmp_path / "module.so"
    so.write_bytes(module_bytes(path, target))
    code = subprocess.run(["objdump", "-d", str(so)], capture_output=True, text=True, check=True).stdout
    packed = len(re.findall(rf"\bv\w+p[sd] .*%{register}", code))
    assert packed > 50, f"only {packed} packed instructions over {register}"
    if target == "x86-64-v3":
        assert "zmm" not in code
    if target in _runnable():
        x = torch.randn(64, 256)
        assert_close(aotpack.load(path)(x), (x.exp() + x.tanh()).softmax(-1), 1e-5)


def _runnable() -> list[str]:
    from aotpack.targets import Target

    host = Target.host()
    return [name for name in Target.known() if Target(name).runs_on(host)]


def test_builds_are_reproducible(tmp_path: Path, cache_dir: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(100, 32), nn.Softmax(-1)).eval()
    paths = [tmp_path / "first.aotpack", tmp_path / "again.aotpack"]
    for path, cache in zip(paths, (cache_dir, tmp_path / "cold"), strict=True):
        program = aot_export(model, (IDS,), dynamic_shapes={"input": {0: Dim("batch", max=1000)}})
        report = build_archive(program, path, options=BuildOptions(cache_dir=cache))
    assert report.cache_hits == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_warm_cache_compiles_nothing(small: Path, tmp_path: Path, cache_dir: Path) -> None:
    program = aot_export(Small().eval(), (IDS,), dynamic_shapes={"ids": {0: Dim("batch", max=1000)}})
    report = build_archive(program, tmp_path / "warm.aotpack", options=BuildOptions(cache_dir=cache_dir))
    assert report.cache_misses == 0 and report.cache_hits > 0


def test_an_archive_runs_where_torch_cannot_be_imported(small: Path, tmp_path: Path) -> None:
    expected = Small().eval()(IDS).detach().numpy()
    np.savez(tmp_path / "case.npz", ids=IDS.numpy(), expected=expected)
    script = textwrap.dedent(
        """
        import sys

        class NoTorch:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("torch", "triton", "sympy"):
                    raise ImportError(f"{name} is not available here")

        sys.meta_path.insert(0, NoTorch())
        import aotpack, numpy as np

        case = np.load(sys.argv[2])
        result = aotpack.load(sys.argv[1], verify="full")(case["ids"])
        assert isinstance(result, np.ndarray) and np.abs(result - case["expected"]).max() < 1e-6
        libraries = open("/proc/self/maps").read()
        assert "libtorch" not in libraries, "libtorch is loaded"
        print("right")
        """
    )
    command = [sys.executable, "-c", script, str(small), str(tmp_path / "case.npz")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "right\n"


def test_indices_of_padded_values_are_checked(tmp_path: Path, cache_dir: Path) -> None:
    class Padded(nn.Module):
        def forward(self, table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.pad(table[index], (0, 3, 0, 2))

    table, index = torch.randn(8, 50), torch.randint(0, 8, (20,))
    path = tmp_path / "m.aotpack"
    build_archive(aot_export(Padded(), (table, index)), path, options=BuildOptions(cache_dir=cache_dir))
    model = aotpack.load(path)
    assert torch.equal(torch.from_dlpack(model(table, index)), Padded()(table, index))
    index[7] = 8
    with pytest.raises(ExecutionError, match="index out of range: an index must be at least 0 and below 8"):
        model(table, index)


def test_errors_inside_kernels_fail_the_call_and_nothing_else(small: Path) -> None:
    model = aotpack.load(small)
    bad = IDS.clone()
    bad[1, 3] = 100
    for _ in range(3):
        with pytest.raises(ExecutionError, match="index out of range: an index must be at least 0 and below 100"):
            model(bad)
        with pytest.raises(ExecutionError):
            model(torch.full((1000, 12), 100))  # enough work for several threads
    assert_close(model(IDS), Small().eval()(IDS).detach())


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    program = aot_export(nn.ReLU(), (torch.randn(3),))
    with pytest.raises(UnsupportedTargetError):
        build_archive(program, tmp_path / "model.aotpack", targets=["pdp-11"])
    with pytest.raises(BuildError, match="does not exist"):
        build_archive(program, tmp_path / "missing" / "model.aotpack")
    with pytest.raises(BuildError, match="opt_level is '4'"):
        build_archive(program, tmp_path / "model.aotpack", options=BuildOptions(opt_level=4))


@pytest.mark.parametrize(("requested", "default", "level"), [(None, None, 3), (None, "2", 2), (1, "2", 1)])
def test_the_optimization_level_of_generated_code(
    requested: int | None,
    default: str | None,
    level: int,
    tmp_path: Path,
    cache_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AOTPACK_OPT_LEVEL", default or "")
    used: set[str] = set()
    run = Compiler.run

    def noting(self: Compiler, arguments: list[str], **options: Any) -> object:
        if "kernels0.cpp" in arguments:
            used.update(argument for argument in arguments if re.fullmatch("-O.", argument))
        return run(self, arguments, **options)

    monkeypatch.setattr(Compiler, "run", noting)
    # Another number in every run: what an earlier one compiled is in the cache.
    factor = 1000 + secrets.randbits(20)
    program = aot_export(lambda x: x * factor, (torch.randn(3),))
    path = tmp_path / "model.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, opt_level=requested))
    assert used == {f"-O{level}"}
    assert aotpack.load(path).manifest.producer["flags"] == f"-O{level}"
    assert_close(aotpack.load(path)(torch.ones(3)), torch.full((3,), float(factor)))


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.total += x
        x.mul_(2)
        return self.total * 10


def test_state_and_inputs_that_the_model_writes_to(build: Build) -> None:
    archive = build(Stateful(), (torch.ones(3),))
    for _ in range(2):
        context = archive.context()
        x = torch.ones(3)
        assert context(x).tolist() == [10, 10, 10] and x.tolist() == [2, 2, 2]
        assert context(x).tolist() == [30, 30, 30] and x.tolist() == [4, 4, 4]


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu_(self.bn(self.conv(x)))
        z = self.conv(x)
        z.view(-1)[:5].fill_(7.0)
        return y, z


def test_in_place_operators(build: Build) -> None:
    model, x = InPlace().eval(), torch.randn(1, 3, 6, 6)
    with torch.no_grad():
        expected = model(x)
    assert_close(build(model, (x,))(x), expected, 1e-5)


def test_random_operators_differ_between_calls_and_repeat_under_a_seed(build: Build) -> None:
    archive = build(lambda x: x + torch.rand(1000) + torch.nn.functional.dropout(x, 0.5), (torch.ones(1000),))
    x = torch.ones(1000)
    assert not torch.equal(archive(x), archive(x))
    first, second = archive.context(seed=7), archive.context(seed=7)
    assert torch.equal(first(x), second(x))


def test_two_builds_at_once_do_not_clash(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    runs = [warm_python().start("-c", _BUILD_SCRIPT, cache, tmp_path / f"{i}.aotpack") for i in range(2)]
    for run in runs:
        done = run.wait()
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "0.aotpack").read_bytes() == (tmp_path / "1.aotpack").read_bytes()
    assert not list(cache.glob("*/tmp/*"))
    assert not list(cache.glob("*/locks/*"))


_BUILD_SCRIPT = """
import sys, torch
from aotpack.export import BuildOptions, aot_export, build_archive
torch.manual_seed(0)
model = torch.nn.Softmax(-1).eval()
build_archive(aot_export(model, (torch.zeros(4, 8),)), sys.argv[2], options=BuildOptions(cache_dir=sys.argv[1]))
"""
