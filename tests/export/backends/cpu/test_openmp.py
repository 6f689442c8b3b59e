"""The constructs of OpenMP that modules have, on the threads of a runtime (csrc/module/openmp.cpp)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aotpack.building import native_sources
from aotpack.export.backends.cpu import toolchain

_MAIN = """
#include <omp.h>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "tensor.h"
#include "threads.h"

using namespace aotpack::module;

#define CHECK(condition) if (!(condition)) std::printf("line %d: %s\\n", __LINE__, #condition)

namespace {

// Each part has a thread of its own, or all run on the calling one, the last first.
bool in_turn = false;
int regions = 0;
std::barrier<>* meeting = nullptr;

void run(void*, aotpack_module_body_fn body, void* argument, int32_t parts) {
  ++regions;
  if (in_turn) {
    for (int32_t part = parts; part-- > 0;) body(argument, part, parts);
    return;
  }
  std::barrier<> all(parts);
  meeting = &all;
  std::vector<std::thread> threads;
  for (int32_t part = 1; part < parts; ++part) threads.emplace_back([=] { body(argument, part, parts); });
  body(argument, 0, parts);
  for (std::thread& thread : threads) thread.join();
}
void meet(void*) { meeting->arrive_and_wait(); }

void loops(int expected) {
  constexpr int kCount = 1000;
  std::vector<int> once(kCount, 0), sums(64, 0);
  const int most = omp_get_max_threads();
#pragma omp parallel
  {
    const int tid = omp_get_thread_num();
    CHECK(omp_get_num_threads() == expected && tid < expected && tid < most);
    CHECK(omp_in_parallel() == (expected > 1));
    sums[tid] = tid + 1;
#pragma omp for nowait
    for (int i = 0; i < kCount; ++i) once[i] += 1;
  }
  CHECK(std::accumulate(once.begin(), once.end(), 0) == kCount);
  CHECK(std::accumulate(sums.begin(), sums.end(), 0) == expected * (expected + 1) / 2);
  CHECK(omp_get_num_threads() == 1 && omp_get_thread_num() == 0 && omp_in_parallel() == 0);
#pragma omp parallel for collapse(2) num_threads(2)
  for (int i = 0; i < 10; ++i) {
    for (int j = 0; j < 100; ++j) once[i * 100 + j] += 1;
  }
  CHECK(std::accumulate(once.begin(), once.end(), 0) == 2 * kCount);
#pragma omp parallel for num_threads(3) if (expected > 100)
  for (int i = 0; i < kCount; ++i) CHECK(omp_get_num_threads() == 1);
#pragma omp parallel num_threads(3)
  {
#pragma omp parallel num_threads(3)
    CHECK(omp_get_num_threads() == 1 && omp_get_thread_num() == 0);
  }
}

// Where one loop reads what another wrote, and one part alone writes.
void barriers(int expected) {
  constexpr int kCount = 1000;
  std::vector<int> first(kCount, 0), second(kCount, 0);
  int alone = 0, later = 0;
#pragma omp parallel
  {
#pragma omp for
    for (int i = 0; i < kCount; ++i) first[i] = i;
#pragma omp single
    { alone += 1; }
#pragma omp for
    for (int i = 0; i < kCount; ++i) second[i] = first[kCount - 1 - i] + alone;
#pragma omp single
    later += 1;
#pragma omp single
    later += 10;
#pragma omp barrier
    CHECK(later == 11 && omp_get_num_threads() == expected);
  }
  for (int i = 0; i < kCount; ++i) CHECK(second[i] == kCount - i);
}

void call(const aotpack_module_team* team, int threads, size_t size, int expected, bool meets) {
  aotpack_module_call call;
  std::memset(&call, 0, sizeof call);
  call.struct_size = size;
  call.num_threads = threads;
  call.team = team;
  Call scope(&call);
  ThreadCount count(threads);
  loops(expected);
  if (meets) barriers(expected);
}

}  // namespace

int main() {
  const aotpack_module_team team = {sizeof team, nullptr, run, meet};
  constexpr size_t kAll = sizeof(aotpack_module_call), kBefore = offsetof(aotpack_module_call, team);
  call(&team, 3, kAll, 3, true);
  call(&team, 5, kAll, 5, true);
  in_turn = true;
  call(&team, 4, kAll, 4, false);
  CHECK(regions > 6);
  regions = 0;
  call(&team, 1, kAll, 1, false);
  CHECK(regions == 2);  // those that ask for several
  call(nullptr, 3, kAll, 1, true);
  call(&team, 3, kBefore, 1, true);  // of a runtime that does not know teams
  CHECK(regions == 2);
  CHECK(omp_get_max_threads() == 1);
  std::puts("done");
}
"""


def test_constructs_of_modules(tmp_path: Path) -> None:
    compiler = toolchain.find_compiler()
    if compiler.is_clang:
        pytest.skip("modules of clang have its OpenMP runtime")
    (tmp_path / "main.cpp").write_text(_MAIN)
    folder = native_sources.module_folder()
    includes = [flag for each in native_sources.include_folders() for flag in ("-I", str(each))]
    sources = ["main.cpp", *(str(folder / name) for name in ("openmp.cpp", "tensor.cpp", "copy.cpp"))]
    objects = [f"{index}.o" for index in range(len(sources))]
    for source, made in zip(sources, objects, strict=True):
        flags = ["-std=c++20", "-O1", "-fopenmp", "-w", *includes]
        subprocess.run([*compiler.command, *flags, "-c", source, "-o", made], cwd=tmp_path, check=True)
    # Without -fopenmp: there is no other OpenMP runtime.
    subprocess.run([*compiler.command, *objects, "-pthread", "-o", "main"], cwd=tmp_path, check=True)
    result = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
