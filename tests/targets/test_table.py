"""One table of targets: the runtime's own list of names and features agrees with it."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from aotpack.errors import UnsupportedTargetError
from aotpack.targets import BUILDABLE, TABLE, Target, TargetInfo, target

ROOT = Path(__file__).resolve().parents[2]
SOURCE = next((ROOT / "csrc" / "runtime").rglob("target.cpp")).read_text()

# The names of features in /proc/cpuinfo, where they are not those of the manual.
CPUINFO = {"sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "lahf": "lahf_lm", "lzcnt": "abm"}


def runtime_targets() -> dict[str, tuple[str, int]]:
    """name → (architecture, level) of `kTargets` in csrc/runtime."""
    table = SOURCE[SOURCE.index("kTargets[] = {") :]
    rows = re.findall(r'\{"([^"]+)", "([^"]+)", (\d+)\}', table[: table.index("};")])
    return {name: (arch, int(level)) for name, arch, level in rows}


def runtime_features(arch: str, level: int) -> set[str]:
    """What the runtime asks a processor of this level for, by the names of /proc/cpuinfo."""
    table = SOURCE[SOURCE.index({"x86-64": "kX86Features[]", "aarch64": "kArmFeatures[]"}[arch]) :]
    found = re.findall(rf'\{{{level}, "([^"]+)", Register::k(\w+)', table[: table.index("};")])
    return {CPUINFO.get(name, name) for name, register in found if register not in ("Xcr0", "SveLengths")}


def runtime_sve_bits(level: int) -> list[int]:
    """The length of SVE's vectors that the runtime asks a processor of this level for."""
    found = re.findall(rf'\{{{level}, "SVE vectors of (\d+) bits", Register::kSveLengths, 1u << (\d+)\}}', SOURCE)
    assert all(int(bits) == 128 * (int(place) + 1) for bits, place in found)
    return [int(bits) for bits, _ in found]


CPUS = [info for info in TABLE if info.backend == "cpu"]
GPUS = [info for info in TABLE if info.backend == "cuda"]


@pytest.mark.parametrize("info", CPUS, ids=lambda info: info.name)
def test_the_runtime_knows_every_target(info: TargetInfo) -> None:
    assert runtime_targets()[info.name] == (info.arch, info.level)


@pytest.mark.parametrize("info", [info for info in TABLE if info.cpu_flags], ids=lambda info: info.name)
def test_the_runtime_asks_for_the_same_features(info: TargetInfo) -> None:
    # xsave is how the registers are saved, which the runtime reads from XCR0.
    assert info.cpu_flags - {"xsave"} == runtime_features(info.arch, info.level)


def test_the_runtime_asks_for_the_same_length_of_vectors() -> None:
    for info in CPUS:
        if info.arch == "aarch64":
            assert runtime_sve_bits(info.level) == ([] if info.sve_bits is None else [info.sve_bits])


@pytest.mark.parametrize(
    ("sve_bits", "best"),
    [(None, "aarch64-bf16"), (128, "aarch64-bf16"), (256, "aarch64-sve256"), (512, "aarch64-bf16")],
)
def test_a_host_with_sve_has_the_target_of_its_vectors(
    monkeypatch: pytest.MonkeyPatch, sve_bits: int | None, best: str
) -> None:
    every = frozenset().union(*(info.cpu_flags for info in CPUS if info.arch == "aarch64"))
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr(target, "_cpu_flags", lambda: every)
    monkeypatch.setattr(target, "_sve_bits", lambda: sve_bits)
    assert Target.host() == Target(best)
    monkeypatch.setattr(target, "_cpu_flags", lambda: every - {"svebf16"})
    assert Target.host() == Target("aarch64-bf16")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="a machine that may have SVE")
def test_other_processors_have_no_vectors_of_sve() -> None:
    assert target._sve_bits() is None


@pytest.mark.parametrize("info", TABLE, ids=lambda info: info.name)
def test_a_target_that_can_be_built_is_whole(info: TargetInfo) -> None:
    assert info.buildable == (info.name in BUILDABLE)
    assert (info.gpu is None) == (info.backend == "cpu")
    if info.buildable and info.backend == "cpu":
        assert info.vector_isa is not None
        assert info.torch_capability is not None


def test_higher_levels_run_what_lower_ones_run() -> None:
    targets = [Target(info.name) for info in CPUS]
    for one in targets:
        for other in targets:
            assert one.runs_on(other) == (one.arch == other.arch and one.level <= other.level)


def test_the_host_runs_a_target() -> None:
    host = Target.host()
    assert Target.parse("native") == host
    assert host.runs_on(host)


def test_targets_without_code_are_refused() -> None:
    for name in set(Target.known()) - set(BUILDABLE):
        with pytest.raises(UnsupportedTargetError, match=name):
            Target.buildable(name)


def test_gpus_run_portable_code_of_older_ones_and_their_own() -> None:
    runs = {info.name: [other.name for other in GPUS if Target(other.name).runs_on(Target(info.name))] for info in GPUS}
    assert runs["cuda-sm_80"] == ["cuda-sm_80"]
    assert runs["cuda-sm_89"] == ["cuda-sm_80", "cuda-sm_86", "cuda-sm_89"]
    assert runs["cuda-sm_120"] == ["cuda-sm_80", "cuda-sm_86", "cuda-sm_89", "cuda-sm_120"]
    assert not any(Target(info.name).runs_on(Target(cpu.name)) for info in GPUS for cpu in CPUS)


@pytest.mark.parametrize("info", GPUS, ids=lambda info: info.name)
def test_a_gpu_has_the_number_of_its_name(info: TargetInfo) -> None:
    assert info.gpu is not None
    assert info.name == f"cuda-sm_{info.gpu.architecture}" == f"cuda-sm_{info.level}"
    # One KiB of each block is reserved by the system.
    assert info.gpu.shared_per_block + 1024 == info.gpu.shared_per_multiprocessor


def test_one_name_stands_for_all_gpus() -> None:
    assert Target.all_buildable(["x86-64-v3", "cuda", "cuda-sm_90"]) == (
        Target("x86-64-v3"),
        *(Target(info.name) for info in GPUS),
    )
