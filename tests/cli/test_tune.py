"""`aotpack tune`, `build --tune` and what `inspect` says of it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.archive.tuning import Choice, Tuning, read_tunings, replace_tunings
from aotpack.building.cache import BuildCache
from aotpack.building.compiler import find_compiler
from aotpack.cli.build_tuning import algorithm_options
from aotpack.cli.tune import parse_threads
from aotpack.cli.tuning_cache import TuningCache
from aotpack.cli.tuning_run import Site
from aotpack.cli.tuning_search import Known
from aotpack.export.backends.backend import Tools
from aotpack.export.backends.cpu.probe import probe_program
from aotpack.export.driver import algorithms
from aotpack.runtime._native import host_processor
from aotpack.spec import CallSpec, TensorLeaf
from aotpack.targets import Target
from tests.cli.test_commands import invoke, invoke_json
from tests.runtime.packing.test_pack import weights
from tests.support.archives import CompileC, Recipe, make_archive, tensor
from tests.support.safetensors import write_safetensors

# y = x + the choice of site 7. It takes 400 us, which position 2 of the first knob makes 200 and position 1 of the
# second 280; both together 140. Position 1 of the first takes 600 us.
SPINNING = Recipe(
    body="""
#include <time.h>
static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tuning* tuning = call->tuning;
  uint32_t choice = 0;
  for (uint64_t i = 0; tuning && i < tuning->num_choices; ++i) {
    if (tuning->choices[i].site == 7) choice = tuning->choices[i].choice;
  }
  const uint64_t begin = now();
  double wanted = 400e3;
  if ((choice & 15) == 1) wanted = 600e3;
  if ((choice & 15) == 2) wanted = 200e3;
  if ((choice >> 4 & 15) == 1) wanted *= 0.7;
  while ((double)(now() - begin) < wanted) {}
  if (tuning && tuning->record) {
    const int64_t numbers[] = {4, 5};
    const aotpack_module_site site = {sizeof(site), 7, "spin", numbers, 2, choice, {3, 2}, now() - begin};
    tuning->record(tuning->recorder, &site);
  }
  float* y = make(call, 0, &call->inputs[0], AOTPACK_DTYPE_FLOAT32, sizeof(float));
  if (!y) return fail(call, AOTPACK_MODULE_OUT_OF_MEMORY, "no memory");
  *y = *(const float*)call->inputs[0].data + (float)choice;
  return AOTPACK_MODULE_OK;
}
""",
    inputs=(tensor("x", [1]),),
    outputs=(tensor("output", [1]),),
    in_spec=CallSpec((TensorLeaf(0),), ("x",)),
    out_spec=TensorLeaf(0),
    name="spinning",
)
BEST = 0x12


@pytest.fixture(autouse=True)
def fresh_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("AOTPACK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def spinning(compile_c: CompileC, tmp_path: Path) -> Path:
    return make_archive(tmp_path / "spinning.aotpack", SPINNING, compile_c)


def answer(path: Path, threads: int = 1) -> float:
    return float(np.asarray(aotpack.load(path, num_threads=threads)(np.ones(1, np.float32)))[0])


def tunings(path: Path) -> tuple[Tuning, ...]:
    with ArchiveReader(path) as reader:
        reader.verify()
        return read_tunings(reader)


def test_the_fastest_way_is_written_into_the_archive(spinning: Path) -> None:
    assert answer(spinning) == 1
    value = invoke_json("tune", spinning, "--threads", 1, "--seconds", 1)
    assert (value["processor"], value["changed"]) == (host_processor(), True)
    (result,) = value["results"]
    assert (result["entry"], result["threads"], result["problem"]) == ("forward", 1, None)
    assert (result["sites"], result["measured"]) == (1, 1)
    assert result["after_seconds"] < result["before_seconds"]
    (choice,) = result["choices"]
    assert (choice["kernel"], choice["numbers"], choice["choice"]) == ("spin", [4, 5], BEST)
    assert 2 < choice["speedup"] < 4
    assert answer(spinning) == 1 + BEST
    assert answer(spinning, threads=2) == 1
    (tuning,) = tunings(spinning)
    assert tuning.key == ("x86-64-v3", host_processor(), 1)
    assert (tuning.choices[0].site, tuning.choices[0].choice) == (f"{7:016x}", BEST)


def test_it_says_what_it_found(spinning: Path) -> None:
    result = invoke("tune", spinning, "--threads", 1, "--seconds", 1)
    assert result.exit_code == 0, result.output
    assert "knob 0 2, knob 1 1" in result.stdout
    assert "written to the archive" in result.stdout
    shown = invoke("inspect", spinning).stdout
    assert f"1 kernels for 1 thread of x86-64-v3 on {host_processor()}" in " ".join(shown.split())
    assert invoke_json("inspect", spinning)["tuning"][0]["choices"][0]["choice"] == BEST


def test_tunings_of_other_hosts_and_sites_stay(spinning: Path) -> None:
    other = Tuning("x86-64-v3", "another", 1, (Choice(f"{7:016x}", 1, "spin", (4, 5), 1.5),))
    site = Choice(f"{8:016x}", 1, "spin", (8, 8), 1.5)
    replace_tunings(spinning, (other, Tuning("x86-64-v3", host_processor(), 1, (site,))))
    assert answer(spinning) == 1
    invoke_json("tune", spinning, "--threads", 1, "--seconds", 1)
    here, kept = tunings(spinning)
    assert kept == other
    assert [(each.site, each.choice) for each in here.choices] == [(f"{7:016x}", BEST), (site.site, 1)]


def test_a_second_archive_of_the_same_shapes_needs_no_measuring(spinning: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.aotpack"
    second.write_bytes(spinning.read_bytes())
    invoke_json("tune", spinning, "--threads", 1, "--seconds", 1)
    (result,) = invoke_json("tune", second, "--threads", 1, "--seconds", 1, "--reuse")["results"]
    assert (result["measured"], result["reused"]) == (0, 1)
    assert answer(second) == 1 + BEST
    assert tunings(second) == tunings(spinning)


def test_the_cache_keeps_ways_by_site_processor_and_threads(tmp_path: Path) -> None:
    cache = TuningCache("here", BuildCache(tmp_path))
    site = Site(7, "spin", (4, 5), "x86-64-v3", (3, 2))
    other = Site(8, "spin", (4, 5), "x86-64-v3", (3, 2))
    cache.store(site, 1, Known(2, 1.5))
    assert cache.find({7: site, 8: other}, 1) == {7: Known(2, 1.5)}
    assert cache.find({7: site}, 2) == {}
    assert TuningCache("there", BuildCache(tmp_path)).find({7: site}, 1) == {}
    cache.store(site, 1, Known(0, 1.0))
    assert cache.find({7: site}, 1) == {7: Known(0, 1.0)}


def test_it_needs_no_torch(spinning: Path) -> None:
    script = (
        "import sys; from aotpack.cli.app import app\n"
        f"try: app(['tune', {str(spinning)!r}, '--threads', '1', '--seconds', '0.2', '--json'])\n"
        "except SystemExit as end: assert end.code in (0, None), end.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.mark.parametrize(("text", "threads"), [(None, []), ("1", [1]), ("1,4, 2", [1, 4, 2])])
def test_numbers_of_threads(text: str | None, threads: list[int]) -> None:
    assert parse_threads(text) == threads


def test_all_numbers_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, wanted in ((1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])):
        monkeypatch.setattr("aotpack.runtime.cpus.process_cpus", lambda cores=cores: tuple(range(cores)))
        assert parse_threads("all") == wanted


def test_errors(archive: Callable[[str], Path], tmp_path: Path) -> None:
    for text in ("0", "a", "1,", "-1", "5000"):
        assert invoke("tune", archive("affine"), "--threads", text).exit_code == 2
    assert invoke_json("tune", tmp_path / "none", code=1)["error"]["type"] == "ArchiveNotFoundError"
    assert invoke_json("tune", archive("affine"), "--entry", "none", code=1)["error"]["type"] == "EntryNotFoundError"


def test_a_call_that_fails(compile_c: CompileC, tmp_path: Path) -> None:
    body = 'static int32_t run(const aotpack_module_call* call) { return fail(call, AOTPACK_MODULE_FAILED, "no"); }'
    path = make_archive(tmp_path / "failing.aotpack", dataclasses.replace(SPINNING, body=body), compile_c)
    value = invoke_json("tune", path, "--seconds", 0.1)
    assert "the call fails" in value["results"][0]["problem"]
    assert not value["changed"]


# ---- of models ------------------------------------------------------------------------------------------------------

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 40, 3, padding=1)
        self.one = nn.Conv2d(40, 33, 1)
        self.linear = nn.Linear(33, 70)

    def forward(self, x):
        y = self.one(self.conv(x).relu()).flatten(2).transpose(1, 2)
        return self.linear(torch.bmm(torch.bmm(y, y.transpose(1, 2)), y))

def model():
    torch.manual_seed(0)
    return Model().eval()

def example_inputs():
    torch.manual_seed(1)
    return (torch.randn(2, 16, 9, 11),)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("built")
    (folder / "source.py").write_text(SOURCE)
    result = invoke("build", folder / "source.py", "-o", folder / "model.aotpack", "--sources")
    assert result.exit_code == 0, result.output
    return folder / "model.aotpack"


def test_every_kernel_gives_the_same_in_all_its_ways(built: Path) -> None:
    model = aotpack.load(built)
    generator = np.random.default_rng(0)
    x = generator.standard_normal((2, 16, 9, 11), dtype=np.float32)
    expected = np.asarray(model(x)).astype(np.float64)
    for threads in (1, 3):
        context = model.context(num_threads=threads)
        context._set_choices([], True)
        context(x)
        sites = {number: positions for number, _, _, _, _, positions, _ in context._sites()}
        kernels = [kernel for _, kernel, *_ in context._sites()]
        assert sorted(kernels) == ["conv", "conv", "gemm", "gemm", "linear"]
        assert any(count > 1 for positions in sites.values() for count in positions)
        for _ in range(60):
            ways = {number: int(generator.integers(0, 1 << 32)) for number in sites}
            context._set_choices(sorted(ways.items()), True)
            found = np.asarray(context(x)).astype(np.float64)
            assert {number: choice for number, _, _, _, choice, _, _ in context._sites()} == ways
            assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


def test_a_build_tunes(built: Path, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "model.aotpack"
    # Compiled objects are those of other tests; nothing was measured.
    monkeypatch.setenv("AOTPACK_CACHE_DIR", str(cache_dir))
    monkeypatch.setattr(algorithms, "_SUFFIX", f".{uuid.uuid4().hex}.json")
    # The program that measures is compiled by then.
    probe_program(Target.host().name, frozenset(), Tools(BuildCache(), find_compiler(None)))
    result = invoke("build", built.parent / "source.py", "-o", output, "--tune", "fast", "--json")
    assert result.exit_code == 0, result.output
    value = json.loads(result.stdout)
    assert set(value["tuning"]) == {"archive", "processor", "changed", "results"}
    assert value["tuning"]["results"][0]["sites"] == 5
    assert value["size"] == output.stat().st_size
    rest = sum(seconds for phase, seconds in value["seconds"].items() if phase != "tune")
    # Beside what a process needs to start.
    assert value["seconds"]["tune"] < 0.5 * rest + 2
    assert invoke("verify", output).exit_code == 0
    measured = value["algorithms"]["measured"]
    assert {each["operator"] for each in measured} == {"conv"}
    assert invoke_json("inspect", output)["algorithms"] == measured
    assert "conv direct" in (text := invoke("inspect", output).output)
    assert f"on {host_processor()}" in text.replace("\n", " ")
    # What measured algorithms leave is for the ways of kernels.
    assert value["algorithms"]["seconds"] < 4


def test_the_options_of_a_build_say_how_algorithms_are_measured() -> None:
    assert algorithm_options("none", 9.0) == {}
    assert 0 < algorithm_options("fast", 2.0)["tune_seconds"] < algorithm_options("fast", 60.0)["tune_seconds"]
    full = algorithm_options("full", 2.0)
    assert full["tune_threads"][0] == 1
    assert full["tune_seconds"] > algorithm_options("fast", 2.0)["tune_seconds"]


def test_a_build_that_is_not_tuned_says_nothing_of_it(built: Path) -> None:
    shown = invoke_json("inspect", built)
    assert shown["tuning"] == shown["algorithms"] == []
    assert "algorithms" not in invoke("inspect", built).output
    with ArchiveReader(built) as reader:
        assert not any("tuning" in file.path for file in reader.manifest.files)


def test_unpacking_and_packing_keep_it(built: Path, archive: Callable[[str], Path], tmp_path: Path) -> None:
    site = Choice(f"{7:016x}", 1, "spin", (8, 8), 1.5)
    given = (Tuning("x86-64-v3", "another", 1, (site,)),)
    path = tmp_path / "model.aotpack"
    path.write_bytes(built.read_bytes())
    replace_tunings(path, given)
    assert invoke("unpack", path, "-o", tmp_path / "folder").exit_code == 0
    assert invoke("pack", tmp_path / "folder", "-o", tmp_path / "packed.aotpack").exit_code == 0
    assert (tmp_path / "packed.aotpack").read_bytes() == path.read_bytes()
    path.write_bytes(archive("updatable").read_bytes())
    replace_tunings(path, given)
    file = write_safetensors(tmp_path / "w.safetensors", weights())
    assert invoke("pack", path, "--weights", file, "-o", tmp_path / "again.aotpack").exit_code == 0
    assert tunings(tmp_path / "again.aotpack") == given


def test_what_cannot_run_cannot_be_tuned(tmp_path: Path) -> None:
    (tmp_path / "source.py").write_text(SOURCE)
    result = invoke("build", tmp_path / "source.py", "-o", tmp_path / "m.aotpack", "--code-only", "--tune", "fast")
    assert result.exit_code == 2
