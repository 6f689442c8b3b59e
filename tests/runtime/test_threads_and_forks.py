"""Threads inside calls where forks and limits get in the way: in a process of its own, with a time limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import aotpack
from aotpack.errors import InputError
from aotpack.runtime.cpus import process_cpus
from aotpack.spec import CallSpec, DType, TensorLeaf
from tests.conftest import ROOT
from tests.support.archives import Recipe, make_archive, tensor

# int64 [2]: the threads that the call may use, and those that its parallel regions have.
PARALLEL = Recipe(
    body="""
#include <omp.h>

static int32_t run(const aotpack_module_call* call) {
  int64_t team = 0;
  for (int round = 0; round < 20; ++round) {
    team = 0;
#pragma omp parallel num_threads(call->num_threads) reduction(+ : team)
    team += 1;
  }
  int64_t* out = make(call, 0, &call->inputs[0], AOTPACK_DTYPE_INT64, 8);
  out[0] = call->num_threads;
  out[1] = team;
  return AOTPACK_MODULE_OK;
}
""",
    inputs=(tensor("x", [2], DType.INT64),),
    outputs=(tensor("output", [2], DType.INT64),),
    in_spec=CallSpec((TensorLeaf(0),), ("x",)),
    out_spec=TensorLeaf(0),
)

_START = """
import os, resource, sys, threading
import aotpack
X = memoryview(bytes(16)).cast("q")
"""
_FORK = """
def call(model):
    return model(X).tolist()

def on_thread(model):
    results = []
    thread = threading.Thread(target=lambda: results.append(call(model)))
    thread.start()
    thread.join()
    return results[0]

def child(body):
    pid = os.fork()
    if pid == 0:
        print(body(), flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

model = aotpack.load(sys.argv[1], num_threads=3)
child(lambda: [call(model), call(model)])
print(call(model), flush=True)
child(lambda: [call(model), call(model.context(num_threads=2)), call(aotpack.load(sys.argv[1], num_threads=3))])
child(lambda: [on_thread(model), call(model)])
print(call(model), flush=True)
"""
_LIMIT = """
model = aotpack.load(sys.argv[1], num_threads=2)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * os.sysconf("SC_PAGESIZE") + (400 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
context = model.context(num_threads=300)
allowed, used = context(X).tolist()
print(used == allowed == context.num_threads, 1 <= used < 300, flush=True)
"""


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parallel")

    def compile_openmp(source: str) -> bytes:
        (folder / "module.c").write_text(source)
        flags = ["-std=gnu11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-fopenmp"]
        include = ROOT / "csrc" / "include"
        command = ["cc", *flags, "-I", str(include), str(folder / "module.c"), "-o", str(folder / "module.so"), "-lm"]
        subprocess.run(command, check=True)
        return (folder / "module.so").read_bytes()

    return make_archive(folder / "parallel.aotpack", PARALLEL, compile_openmp)


def run(program: str, path: Path) -> list[str]:
    command = [sys.executable, "-c", _START + program, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_calls_in_children_of_a_fork(parallel: Path) -> None:
    assert run(_FORK, parallel) == [
        "[[3, 3], [3, 3]]",  # nothing parallel before: all threads
        "[3, 3]",
        "[[1, 1], [1, 1], [1, 1]]",  # on the thread that forked
        "[[3, 3], [1, 1]]",  # on one of the child's own
        "[3, 3]",
    ]


def test_fewer_threads_where_the_system_has_no_more(parallel: Path) -> None:
    assert run(_LIMIT, parallel) == ["True True"]


def test_contexts_on_chosen_cpus(parallel: Path) -> None:
    model = aotpack.load(parallel)
    x = memoryview(bytes(16)).cast("q")
    cpus = process_cpus()
    first, last = model.context(cpus=[cpus[0]]), model.context(cpus=str(cpus[-1]), num_threads=2)
    assert (first.num_threads, last.num_threads) == (1, 2)
    assert first(x).tolist() == [1, 1]
    assert last(x).tolist() == [2, 2]
    assert process_cpus() == cpus
    with pytest.raises(InputError, match="cannot run on the CPUs 65000: this thread has"):
        model.context(cpus=[65000])
    for wrong in ("", "3-1", [], [-1]):
        with pytest.raises(ValueError, match="a group of CPUs must"):
            model.context(cpus=wrong)
