"""csrc/module/vecmath: the accuracy that Sleef's names promise, speed worth having, and no symbol left to libtorch."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aotpack.building.flags import target_flags
from tests.module_ops.harness import INCLUDES, MODULE, ROOT

pytestmark = pytest.mark.torch

COMPILER = os.environ.get("CXX", "g++")
LIBRARIES = ["-lquadmath"] if platform.machine() == "x86_64" else []
# Name → lanes of float, flags, what /proc/cpuinfo must list.
WIDTHS = {
    "128": (4, ["-march=x86-64-v3"] if platform.machine() == "x86_64" else [], {"avx2", "fma"}),
    "256": (8, ["-march=x86-64-v3"], {"avx2", "fma"}),
    "512": (16, ["-march=x86-64-v4"], {"avx512f", "avx512dq", "avx512vl", "avx512bw"}),
}
BOUNDS = {"u05": 0.501, "u10": 1.0, "u15": 1.5, "u35": 3.5, "": 0.0}
# Vector algorithms rather than libm lane by lane.
FAST = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "atan",
    "tanh",
    "sinh",
    "cosh",
    "erf",
]

PROBE = """
#include <torch/csrc/inductor/cpp_prefix.h>
using namespace at::vec;
extern "C" void floats(const float* a, float* b) {
  auto x = Vectorized<float>::loadu(a);
  (x.exp() + x.tanh() + x.erf() + x.erfc() + x.log() + x.pow(x) + x.sin() + x.cos() + x.lgamma() + x.hypot(x) +
   x.fmod(x) + x.expm1() + x.log1p() + x.atan2(x) + x.nextafter(x) + x.copysign(x) + x.exp2()).store(b);
}
extern "C" void doubles(const double* a, double* b) {
  auto x = Vectorized<double>::loadu(a);
  (x.exp() + x.tanh() + x.erf() + x.log() + x.pow(x) + x.sin() + x.log10() + x.asinh()).store(b);
}
extern "C" void halves(const c10::BFloat16* a, c10::BFloat16* b, const c10::Half* c, c10::Half* d) {
  auto x = Vectorized<c10::BFloat16>::loadu(a);
  (x.exp() + x.tanh() + x.erf() + x.log() + x.pow(x) + x.sin() + x.acosh()).store(b);
  auto y = Vectorized<c10::Half>::loadu(c);
  (y.exp() + y.tanh() + y.erf() + y.log() + y.pow(y) + y.sin() + y.acosh()).store(d);
}
"""


def compile_driver(compiler: str, program: Path, options: list[str], libraries: Sequence[str] = ()) -> None:
    """Through ccache where it is installed: GCC takes most of a minute for all functions."""
    launcher, compiled = shutil.which("ccache"), program.with_suffix(".o")
    flags = ["-std=c++20", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", *options]
    flags += [f"-I{MODULE / 'vecmath'}", "-c", str(Path(__file__).with_name("vecmath_driver.cpp"))]
    command = [*([launcher] if launcher else []), compiler, *flags, "-o", str(compiled)]
    subprocess.run(command, check=True, cwd=ROOT)
    subprocess.run([compiler, *options, str(compiled), "-o", str(program), *libraries], check=True)


def compiled_probe(folder: Path, flags: Sequence[str]) -> Path:
    """The object file of `PROBE`. The source has a name without the folder, so that ccache knows it."""
    launcher = shutil.which("ccache")
    (folder / "probe.cpp").write_text(PROBE)
    command = [*([launcher] if launcher else []), COMPILER, *flags, "-c", "probe.cpp", "-o", "probe.o"]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "probe.o"


def cpu_flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


def check_accuracy(report: dict[str, dict[str, Any]]) -> None:
    assert len(report) == 62
    for name, measured in report.items():
        bound = BOUNDS[name.partition("_")[2]]
        assert measured["ulp"] <= bound, f"{name}: {measured['ulp']} ulp at {measured['at']}, {measured['second']}"


@pytest.mark.parametrize("width", WIDTHS)
def test_accuracy_and_speed(width: str, tmp_path: Path) -> None:
    lanes, flags, needed = WIDTHS[width]
    if platform.machine() == "x86_64" and not needed <= cpu_flags():
        pytest.skip(f"this machine has no vectors of {width} bits")
    if platform.machine() != "x86_64" and width != "128":
        pytest.skip("vectors of 128 bits only")
    program = tmp_path / "driver"
    # gcc's own avx512fintrin.h
    options = [f"-DLANES={lanes}", *flags, "-Wno-maybe-uninitialized"]
    compile_driver(COMPILER, program, options, LIBRARIES)
    report = json.loads(subprocess.run([program, "20011"], check=True, capture_output=True, text=True).stdout)
    check_accuracy(report)
    for name in FAST:
        measured = report[f"{name}f_u10"]
        if lanes >= 8:
            assert measured["nanoseconds"] < measured["libm"], f"{name} is slower than libm"


@pytest.mark.slow
@pytest.mark.parametrize(("lanes", "target"), [(4, "aarch64"), (8, "aarch64-sve256")])
def test_accuracy_on_aarch64(lanes: int, target: str, tmp_path: Path) -> None:
    cross, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64-static")
    if cross is None or emulator is None:
        pytest.skip("needs aarch64-linux-gnu-g++ and qemu-aarch64-static")
    program = tmp_path / "driver"
    compile_driver(cross, program, [f"-DLANES={lanes}", "-static", *target_flags(target)])
    # The algorithms are those of the other widths, which go through more numbers.
    command = [emulator, "-cpu", "max,sve256=on", str(program), "3000017", "3000"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    check_accuracy(json.loads(result.stdout))


def inductor_flags(capability: str) -> list[str]:
    defines = [f"-DCPU_CAPABILITY={capability}", f"-DCPU_CAPABILITY_{capability}"]
    return [*defines, "-march=x86-64-v4" if capability == "AVX512" else "-march=x86-64-v3"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86 flags")
@pytest.mark.parametrize("capability", ["AVX2", "AVX512"])
def test_no_symbol_is_left_to_sleef(capability: str, tmp_path: Path) -> None:
    import torch

    includes = [f"-I{MODULE / 'shadow'}", f"-I{MODULE / 'vecmath'}", *INCLUDES]
    includes.append(f"-I{Path(torch.__file__).parent / 'include'}")
    flags = ["-std=c++20", "-O2", "-fPIC", "-fopenmp", "-w", *inductor_flags(capability), *includes]
    target = compiled_probe(tmp_path, flags)
    undefined = subprocess.run(["nm", "-u", str(target)], check=True, capture_output=True, text=True).stdout
    assert "Sleef" not in undefined
    assert "2at" not in undefined, "something of ATen is left undefined"


def test_every_name_that_torch_uses_for_arm_is_defined(tmp_path: Path) -> None:
    import torch

    cross = shutil.which("aarch64-linux-gnu-g++")
    if cross is None:
        pytest.skip("needs aarch64-linux-gnu-g++")
    folder = Path(torch.__file__).parent / "include" / "ATen" / "cpu" / "vec"
    texts = [header.read_text() for header in [*folder.glob("sve/*.h"), *folder.glob("vec128/*.h")]]
    used = {name for text in texts for name in re.findall(r"\bSleef_\w+", text)}
    assert len(used) > 80
    source = tmp_path / "names.cpp"
    source.write_text(
        "#include <sleef.h>\n" + "".join(f"auto* p{i} = &{name};\n" for i, name in enumerate(sorted(used)))
    )
    flags = ["-std=c++20", "-O1", "-w", *target_flags("aarch64-sve256"), f"-I{MODULE / 'vecmath'}"]
    subprocess.run([cross, *flags, "-fsyntax-only", str(source)], check=True)


def test_every_name_that_torch_uses_is_defined(tmp_path: Path) -> None:
    """Catches a new function in a new torch: each Sleef_* of the vector headers has to be known to ours."""
    import torch

    if platform.machine() != "x86_64":
        pytest.skip("x86 headers")
    used: set[str] = set()
    folder = Path(torch.__file__).parent / "include" / "ATen" / "cpu" / "vec"
    for header in [*folder.glob("vec256/*.h"), *folder.glob("vec512/*.h")]:
        used |= set(re.findall(r"\bSleef_\w+?(?:f8|f16|d4|d8)(?:_u\d\d)?\b", header.read_text()))
    assert len(used) > 100
    source = tmp_path / "names.cpp"
    source.write_text(
        "#include <sleef.h>\n" + "".join(f"auto* p{i} = &{name};\n" for i, name in enumerate(sorted(used)))
    )
    flags = ["-std=c++20", "-O1", "-w", "-march=x86-64-v4", f"-I{MODULE / 'vecmath'}", f"-I{ROOT / 'csrc'}"]
    subprocess.run([COMPILER, *flags, "-fsyntax-only", str(source)], check=True)
