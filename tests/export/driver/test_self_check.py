"""A build runs its own example calls: what is right leaves, what is wrong, fails or crashes does not."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

import aotpack
from aotpack.archive import ArchiveReader, write_archive
from aotpack.cli.verify import _check_entry
from aotpack.errors import GoldenError
from aotpack.export import BuildOptions, Program, aot_export, build_archive
from aotpack.export.driver import self_check
from aotpack.export.driver.goldens import golden_file
from aotpack.export.ir.program import Reference
from aotpack.export.tracing import open_results
from tests.support.archives import CompileC, Recipe, build_manifest, c_source
from tests.support.recipes import AFFINE
from tests.support.warm_python import warm_python

pytestmark = pytest.mark.torch


class Counting(torch.nn.Module):
    """Writes to a buffer and to its input, and returns both."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(3))
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.total.add_(x.sum(0))
        x.mul_(2)
        return self.norm(x), self.total, x


def wrong(program: Program, by: float) -> Program:
    """The program, with another first answer of eager's."""
    assert program.reference is not None
    first, *rest = program.reference.outputs
    answers = (first + (first.abs().max() * by).to(first.dtype), *rest)
    return dataclasses.replace(program, reference=dataclasses.replace(program.reference, outputs=answers))


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.fixture(scope="module")
def doubling() -> Program:
    return aot_export(double, (torch.arange(6.0).reshape(2, 3),))


# ---- what a build does ----------------------------------------------------------------------------------------------


def test_a_right_archive_and_its_report(doubling: Program, tmp_path: Path, cache_dir: Path) -> None:
    phases: list[str] = []
    report = build_archive(
        doubling,
        tmp_path / "a.aotpack",
        options=BuildOptions(cache_dir=cache_dir),
        progress=lambda phase, seconds, detail: phases.append(phase),
    )
    assert (report.check.outputs, report.check.error, report.check.skipped) == (1, 0.0, None)
    assert report.check.target == aotpack.load(report.path).target
    assert report.check.unchecked == ()
    assert report.seconds["check"] > 0
    assert phases[-1] == "check"
    assert report.to_dict()["check"]["outputs"] == 1


@pytest.mark.parametrize("goldens", [True, False])
def test_a_wrong_answer_fails_the_build(doubling: Program, tmp_path: Path, cache_dir: Path, *, goldens: bool) -> None:
    path = tmp_path / "a.aotpack"
    path.write_bytes(b"the one before")
    options = BuildOptions(cache_dir=cache_dir, goldens=goldens)
    with pytest.raises(GoldenError) as info:
        build_archive(wrong(doubling, 0.25), path, options=options)
    text = str(info.value)
    for part in ("entry 'forward'", "variant 'default'", "target x86-64-v", "output 'output'", "2.0e-01", "1.0e-04"):
        assert part in text
    assert "--no-check" in str(info.value.hint)
    assert path.read_bytes() == b"the one before"
    assert list(tmp_path.iterdir()) == [path], "the temporary file is still there"
    build_archive(wrong(doubling, 1e-5), path, options=options)

    unchecked = dataclasses.replace(options, check=False)
    report = build_archive(wrong(doubling, 0.25), path, options=unchecked)
    assert (report.check.skipped, report.check.outputs) == ("check=False", 0)
    assert "check" not in report.seconds
    assert aotpack.load(path)(torch.ones(2, 3)).tolist() == [[2.0] * 3] * 2


def test_each_entry_and_variant_is_named(tmp_path: Path, cache_dir: Path) -> None:
    def program(entry: str) -> Program:
        shapes = {"x": {0: aotpack.Dim("n", 1, 8)}}
        return aot_export(double, (torch.ones(4, 3),), entry=entry, dynamic_shapes=shapes, variants=[{"n": 1}, {}])

    one, two = program("one"), program("two")
    special, general = two.variants
    two = dataclasses.replace(
        two, variants=(dataclasses.replace(special, program=wrong(special.program, 0.5)), general)
    )
    with pytest.raises(GoldenError) as info:
        build_archive([one, two], tmp_path / "a.aotpack", options=BuildOptions(cache_dir=cache_dir))
    assert "entry 'two', variant 'n=1'" in str(info.value)
    assert "'one'" not in str(info.value)
    assert "'general'" not in str(info.value)


def test_integers_are_exact(tmp_path: Path, cache_dir: Path) -> None:
    program = aot_export(double, (torch.tensor([1, 1 << 40]),))
    assert program.reference is not None
    (answer,) = program.reference.outputs
    off = dataclasses.replace(program.reference, outputs=(answer + torch.tensor([0, 1]),))
    with pytest.raises(GoldenError, match="none is allowed"):
        build_archive(
            dataclasses.replace(program, reference=off), tmp_path / "a", options=BuildOptions(cache_dir=cache_dir)
        )


def test_state_and_inputs_that_are_written_to(tmp_path: Path, cache_dir: Path) -> None:
    """The first call, from the values of the source model; results that lie in its memory among them."""
    model = Counting()
    program = aot_export(model, (torch.arange(6.0).reshape(2, 3),))
    assert program.reference is not None
    assert model.total.tolist() == [1, 1, 1]
    assert program.reference.outputs[1].tolist() == [4, 6, 8]
    report = build_archive(program, tmp_path / "a.aotpack", options=BuildOptions(cache_dir=cache_dir))
    assert (report.check.outputs, report.check.unchecked) == (3, ())
    with ArchiveReader(report.path) as reader:
        (entry,) = reader.manifest.entries
        found = _check_entry(reader, entry, aotpack.load(report.path))
        assert [item["ok"] for item in found] == [True, True, True]


def test_random_models_have_nothing_to_compare(tmp_path: Path, cache_dir: Path) -> None:
    program = aot_export(lambda x: x + torch.rand_like(x), (torch.ones(3),))
    report = build_archive(program, tmp_path / "a.aotpack", options=BuildOptions(cache_dir=cache_dir))
    assert report.check.outputs == 0
    assert "no deterministic example call" in str(report.check.skipped)
    assert report.check.unchecked == ("forward",)


# ---- archives that do not run ---------------------------------------------------------------------------------------


@pytest.fixture
def check(compile_c: CompileC, tmp_path: Path) -> Callable[..., self_check.CheckReport]:
    """Checks the archive of a recipe, or of bytes that are no code of this machine."""

    def run(recipe: Recipe, code: bytes | None = None, labels: Sequence[str] = ("forward",)) -> self_check.CheckReport:
        recipe = dataclasses.replace(recipe, examples=AFFINE.examples)
        path = tmp_path / "a.aotpack"
        manifest, sources = build_manifest(recipe, compile_c(c_source(recipe)) if code is None else code)
        write_archive(path, manifest, sources)
        (golden,) = manifest.entries[0].goldens
        return self_check.check(path, [self_check.Example("forward", "default", golden)], labels)

    return run


Check = Callable[..., self_check.CheckReport]


def test_a_crash_is_an_error(check: Check) -> None:
    crashing = dataclasses.replace(
        AFFINE,
        body="static int32_t run(const aotpack_module_call* call) { (void)call; *(volatile int*)16 = 1; return 0; }",
    )
    with pytest.raises(GoldenError, match="SIGSEGV"):
        check(crashing)
    leaving = dataclasses.replace(
        AFFINE, body="static int32_t run(const aotpack_module_call* call) { (void)call; _exit(3); }"
    )
    with pytest.raises(GoldenError, match="ended with status 3"):
        check(leaving)
    assert check(AFFINE).outputs == 1


def test_a_call_that_fails_is_an_error(check: Check) -> None:
    body = AFFINE.body.replace(
        "const Tensor* x", 'if (call) return fail(call, AOTPACK_MODULE_FAILED, "too bad");\n  const Tensor* x'
    )
    with pytest.raises(GoldenError, match=r"entry 'forward', variant 'default', target x86-64-v\d: .*too bad"):
        check(dataclasses.replace(AFFINE, body=body))


def test_code_that_cannot_be_loaded_is_an_error(check: Check) -> None:
    with pytest.raises(GoldenError, match="cannot run"):
        check(AFFINE, b"not code at all")


def test_another_machine_is_skipped(check: Check) -> None:
    report = check(dataclasses.replace(AFFINE, target="riscv64-next"), b"code of another machine")
    assert report.outputs == 0
    assert "riscv64-next" in str(report.skipped)
    assert report.unchecked == ("forward",)


def test_variants_that_did_not_run_are_named(check: Check) -> None:
    assert check(AFFINE, labels=("forward", "forward[large]")).unchecked == ("forward[large]",)


def test_what_the_code_prints_is_no_answer(check: Check) -> None:
    body = AFFINE.body.replace("const Tensor* x", 'if (write(1, "12345678", 8) != 8) return 1;\n  const Tensor* x', 1)
    assert check(dataclasses.replace(AFFINE, body=body)).outputs == 1


# ---- the process ----------------------------------------------------------------------------------------------------


def test_the_process_is_kept_and_replaced(check: Check) -> None:
    check(AFFINE)
    first = self_check._worker._process
    assert first is not None
    check(AFFINE)
    assert self_check._worker._process is first
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert check(AFFINE).outputs == 1
    assert self_check._worker._process is not first


def test_a_process_that_ends_just_before_a_request(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 0, as after a minute without requests: another is started. Anything else is the archive's fault."""
    ended = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ended.wait()
    running = self_check._worker._running
    given = [ended]
    monkeypatch.setattr(self_check._worker, "_running", lambda: given.pop() if given else running())
    assert check(AFFINE).outputs == 1


def test_no_process_is_no_failure(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    self_check._worker.close()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    self_check.prepare()
    assert "could not be started" in str(check(AFFINE).skipped)


def test_it_ends_with_the_build(tmp_path: Path, check: Check) -> None:
    """Also where the building process is killed."""
    check(AFFINE)
    code = """
import os, signal
from aotpack.export.driver import self_check
from aotpack.export.driver.goldens import golden_file
self_check.prepare()
print(self_check._worker._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = warm_python().run("-c", code)
    assert done.returncode == -signal.SIGKILL
    number = int(done.stdout)
    for _ in range(600):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z":
                subprocess.run(["sleep", "0.1"], check=True)
                continue
        return
    pytest.fail("the process outlives the build")


def test_the_worker_imports_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import aotpack.cli.golden_worker; print('typer' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# ---- what eager leaves open -----------------------------------------------------------------------------------------

WITH_TIES = torch.tensor([[1.0, 1.0, 3.0, 2.0], [0.0, 1.0, 2.0, 4.0]])
WITHOUT = torch.tensor([[1.0, 5.0, 3.0, 2.0], [0.0, 1.0, 2.0, 4.0]])


@pytest.mark.parametrize(
    ("function", "example", "reason"),
    [
        (lambda x: x.topk(3)[1], WITH_TIES, "topk"),
        (lambda x: x.topk(1)[1], WITH_TIES, None),
        (lambda x: x.topk(2, largest=False)[1], WITH_TIES, "topk"),
        (lambda x: x.topk(3)[1], WITHOUT, None),
        (lambda x: x.topk(4)[1], WITHOUT * 1e6 + 0.01 * torch.arange(4), None),
        (lambda x: x.topk(2, 0)[1], torch.tensor([[1.0], [1.0 + 2**-23], [0.0]]), "topk"),
        (lambda x: x.sort()[1], WITH_TIES, "sort"),
        (lambda x: x.argsort(stable=True), WITH_TIES, "sort"),
        (lambda x: x.argmax(-1), WITH_TIES, None),
        (lambda x: x.argmin(-1), WITH_TIES, "argmin"),
        (lambda x: x.argmax(), torch.zeros(2, 2), "argmax"),
        (lambda x: x.max(0)[1], WITH_TIES, "max"),
        (lambda x: x.long().topk(3)[1], WITHOUT, None),
        (lambda x: x.long().topk(3)[1], WITH_TIES, "topk"),
        (lambda x: (x > 1).int().topk(1)[1], WITH_TIES, "topk"),
        (lambda x: x.masked_fill(x < 3, -torch.inf).topk(1)[1], WITH_TIES, None),
        (lambda x: x.kthvalue(2)[1], WITH_TIES, "kthvalue"),
        (lambda x: x.median(-1)[1], WITHOUT, None),
        (torch.linalg.svd, WITHOUT, "svd"),
        (lambda x: torch.linalg.eigh(x.T @ x), WITHOUT, "eigh"),
    ],
)
def test_what_is_open(function: Callable[..., object], example: torch.Tensor, reason: str | None) -> None:
    with open_results.watched() as reasons:
        function(example)
    assert len(reasons) == (reason is not None)
    assert reason is None or reason in reasons[0]


def test_an_answer_that_may_differ(tmp_path: Path, cache_dir: Path) -> None:
    """It is accepted and reported, and no golden is kept that `aotpack verify` would find wrong."""
    model = torch.nn.Module()
    model.forward = lambda x: x.topk(3)[1]  # type: ignore[method-assign]
    options = BuildOptions(cache_dir=cache_dir)
    program = aot_export(model, (WITH_TIES,))
    other = dataclasses.replace(program, reference=_swapped(program))
    report = build_archive(other, tmp_path / "a.aotpack", options=options)
    assert list(report.check.open) == ["forward"]
    assert "topk: elements that differ only by rounding" in report.check.open["forward"]
    assert report.check.unchecked == ("forward",)
    with ArchiveReader(report.path) as reader:
        assert reader.manifest.entries[0].goldens == ()
        reader.verify()

    determined = aot_export(model, (WITHOUT,))
    report = build_archive(determined, tmp_path / "a.aotpack", options=options)
    assert (report.check.open, report.check.outputs) == ({}, 1)
    with pytest.raises(GoldenError):
        build_archive(
            dataclasses.replace(determined, reference=_swapped(determined)), tmp_path / "a.aotpack", options=options
        )


def _swapped(program: Program) -> Reference:
    assert program.reference is not None
    return dataclasses.replace(program.reference, outputs=(program.reference.outputs[0].flip(-1),))


@pytest.mark.parametrize(("steps", "least", "most"), [(3, 2e-2, 2e-2), (400, 3.9e-2, 4.1e-2), (1000, 5e-2, 5e-2)])
def test_a_deep_model_in_bf16_may_differ_more(steps: int, least: float, most: float) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        for _ in range(steps):
            x = x.sin()
        return x

    found = golden_file(aot_export(model, (torch.randn(4, dtype=torch.bfloat16),)), "example", 0)
    assert found is not None
    assert least <= found[0].tolerance <= most
