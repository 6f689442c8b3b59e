"""What the tests of the Python side share: archives made of small C modules, without torch."""

from __future__ import annotations

import gc
import os
import random
import re
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from aotpack.building.frames import with_room
from tests.support.archives import CompileC, make_archive
from tests.support.once import made_once, run_folder

ROOT = Path(__file__).resolve().parent.parent


# Hypothesis draws by the same rule as the seeds below.
hypothesis.settings.register_profile(
    "aotpack", derandomize="AOTPACK_FUZZ" not in os.environ, database=None, print_blob=True
)
hypothesis.settings.load_profile("aotpack")


def seed_name(item: pytest.Item) -> str:
    """The name of a test for its seed: its id, without the folders below `tests/export`, so that a test that moves
    between these keeps what it draws.
    """
    return re.sub(r"^(tests/export/)(?:\w+/)*(\w+\.py\b)", r"\1\2", item.nodeid)


# Files that take longest, the longest first.
LONGEST = (
    "tests/seeds/test_dynamic_programs.py",
    "tests/export/capture/test_generation.py",
    "tests/export/control_flow/test_gradients.py",
    "tests/export/backends/cuda/test_interpreted.py",
    "tests/export/operators/test_backward.py",
    "tests/export/training/test_optimizers.py",
    "tests/models/test_static_caches.py",
    "tests/export/backends/cpu/test_aarch64_bf16.py",
    "tests/examples/test_train_workers.py",
    "tests/odd_inputs/test_odd_inputs.py",
    "tests/module_ops/test_far.py",
    "tests/export/operators/test_pooling_and_resampling.py",
    "tests/export/operators/test_attention.py",
    "tests/export/partition/test_cost_aware.py",
    "tests/export/backends/cuda/test_tensor_maps.py",
    "tests/export/backends/cuda/test_control_flow.py",
    "tests/export/backends/cuda/test_empty_batches.py",
    "tests/fuzz/test_onnx_files.py",
    "tests/export/tracing/test_joint.py",
    "tests/export/driver/test_build.py",
    "tests/conformance/test_slice.py",
    "tests/conformance/test_architectures.py",
    "tests/export/driver/test_interrupted_builds.py",
    "tests/export/operators/test_recurrent.py",
    "tests/export/passes/test_vision.py",
    "tests/export/symbolic_shapes/test_dynamic_text.py",
    "tests/export/onnx/test_backend_suite.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, then those with the most tests: workers that share the files (`--dist loadfile
    --no-loadscope-reorder`) end at about the same time.
    """
    files = [item.nodeid.partition("::")[0] for item in items]
    tests = Counter(files)
    rank = {name: place for place, name in enumerate(LONGEST)}
    order = sorted(range(len(items)), key=lambda i: (rank.get(files[i], len(LONGEST)), -tests[files[i]], files[i]))
    items[:] = [items[i] for i in order]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """As pytest runs a test, with room for the frames of what it and its fixtures call: torch's stacks are deep."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    with_room(runtestprotocol, item, nextitem=nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seeds what a test and its fixtures draw by the test's name, so that a failure does not depend on which tests the
    process ran before, and comes again. With AOTPACK_FUZZ set, every run draws others.
    """
    seed = (
        random.SystemRandom().getrandbits(32) if "AOTPACK_FUZZ" in os.environ else zlib.crc32(seed_name(item).encode())
    )
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    item.add_report_section("setup", "seed", str(seed))


@pytest.fixture(scope="module", autouse=True)
def young_heap() -> None:
    """Exempts what is left of the files before from garbage collections: beside torch a full one takes a second."""
    gc.collect()
    gc.freeze()
    # As `aotpack build` has it.
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> CompileC:
    """Compiles C that implements module_abi.h; equal sources once per run."""
    folder = tmp_path_factory.mktemp("modules")
    known: dict[str, bytes] = {}

    def compile_source(source: str) -> bytes:
        if source not in known:
            path = folder / f"{len(known)}.c"
            path.write_text(source)
            output = path.with_suffix(".so")
            flags = ["-std=gnu11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Werror"]
            include = ROOT / "csrc" / "include"
            subprocess.run(["cc", *flags, "-I", str(include), str(path), "-o", str(output), "-lm"], check=True)
            known[source] = output.read_bytes()
        return known[source]

    return compile_source


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver without a GPU (tests/support/fake_cuda). One for all tests: a process opens one driver."""
    from tests.support.cuda_archives import build_fake_driver

    def make(folder: Path) -> None:
        build_fake_driver(folder / "libcuda.so.1")

    return made_once(tmp_path_factory, "fake-cuda", make) / "libcuda.so.1"


@pytest.fixture(scope="session")
def fake_providers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of libraries of NVIDIA's without a GPU (tests/support/fake_providers)."""
    from tests.support.cuda_archives import build_fake_providers

    return made_once(tmp_path_factory, "fake-providers", lambda folder: build_fake_providers(folder))


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build cache for the whole run and all its processes: kernels are compiled once. AOTPACK_TEST_CACHE is a
    folder in which later runs find it again.
    """
    if kept := os.environ.get("AOTPACK_TEST_CACHE"):
        return Path(kept).absolute()
    folder = run_folder(tmp_path_factory) / "build-cache"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def surroundings(cache_dir: Path) -> Iterator[None]:
    """What commands of ours take from the environment: the run's build cache, not the one at home; no terminal's width,
    which workers of pytest-xdist have there.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTPACK_CACHE_DIR", str(cache_dir))
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(scope="session")
def archive(compile_c: CompileC, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The path of a ready archive by the name of its recipe (tests/support/recipes.py). Not to be written to."""
    from tests.support.recipes import RECIPES

    folder = tmp_path_factory.mktemp("archives")

    def get(name: str) -> Path:
        path = folder / f"{name}.aotpack"
        return path if path.exists() else make_archive(path, RECIPES[name], compile_c)

    return get


@pytest.fixture(scope="session")
def described_archives(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    """A folder with archives that have descriptions (tests/support/described.py): `described.aotpack` and
    `staged.aotpack`, with hooks for profiles. Not to be written to.
    """

    def make(folder: Path) -> None:
        from tests.support.described import build_described, build_staged

        build_described(folder / "described.aotpack", cache_dir)
        build_staged(folder / "staged.aotpack", cache_dir, profile=True)

    return made_once(tmp_path_factory, "described", make)
