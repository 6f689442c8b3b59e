"""Values of a module in one block of memory: Call::place of csrc/module/tensor.h, and where builds have it called."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from aotpack.building import native_sources
from aotpack.export.backends.cpu import toolchain
from aotpack.export.backends.cpu.calls import read_calls

_MAIN = """
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "shim/tensors.h"

using namespace aotpack::module;

#define CHECK(condition) if (!(condition)) std::printf("line %d: %s\\n", __LINE__, #condition)

namespace {

std::multiset<size_t> live;
int allocations = 0;
void* allocate(void*, size_t bytes) {
  ++allocations;
  live.insert(bytes);
  char* block = static_cast<char*>(std::aligned_alloc(64, (bytes + 64 + 63) / 64 * 64));
  std::memcpy(block, &bytes, sizeof bytes);
  return block + 64;
}
void release(void*, void* block) {
  size_t bytes;
  std::memcpy(&bytes, static_cast<char*>(block) - 64, sizeof bytes);
  live.erase(live.find(bytes));
  std::free(static_cast<char*>(block) - 64);
}
void failed(void*, int32_t, const char*, size_t) {}
uint64_t seed(void*) { return 0; }

Tensor* floats(Call& call, int64_t count) { return call.empty_contiguous(1, &count, AOTPACK_DTYPE_FLOAT32); }

}  // namespace

int main() {
  void* imports[] = {reinterpret_cast<void*>(allocate), reinterpret_cast<void*>(release),
                     reinterpret_cast<void*>(failed), reinterpret_cast<void*>(seed)};
  aotpack_module_call arguments;
  std::memset(&arguments, 0, sizeof arguments);
  arguments.struct_size = sizeof arguments;
  arguments.imports = imports;
  arguments.num_threads = 1;
  aotpack_module_tensor out[3];
  {
    Call call(&arguments);
    CHECK(allocations == 0);
    AOTPACK_PLACE(0, 400, 1024)
    Tensor* a = floats(call, 100);
    CHECK(allocations == 1 && live.count(1024) == 1);
    AOTPACK_PLACE(448, 400, 1024)
    Tensor* b = floats(call, 100);
    CHECK(b->data == a->data + 448 && allocations == 1);
    // Of other sizes, and without a place: memory of its own.
    AOTPACK_PLACE(896, 100, 1024)
    Tensor* c = floats(call, 30);
    CHECK(live.count(120) == 1);
    call.drop(c);
    // The last place is still to be had, by who has that size.
    Tensor* d = floats(call, 25);
    CHECK(d->data == a->data + 896);
    // Where a tensor is, or a view of it, no other comes.
    const int64_t half = 50, one = 1;
    Tensor* view = call.view(a, 1, &half, &one, 50);
    call.drop(a);
    AOTPACK_PLACE(64, 64, 1024)
    Tensor* e = floats(call, 16);
    CHECK(live.count(64) == 1);
    call.drop(view);
    AOTPACK_PLACE(0, 400, 1024)
    Tensor* f = floats(call, 100);
    CHECK(f->data == b->data - 448);
    // Results that lie there after all are moved, once for all views.
    for (int i = 0; i < 100; ++i) f->as<float>()[i] = static_cast<float>(i);
    Tensor* tail = call.view(f, 1, &half, &one, 50);
    Tensor* results[] = {f, tail, e};
    call.give(results, 3, out);
    CHECK(out[0].block != nullptr && out[0].block == out[1].block && out[0].data == out[0].block);
    CHECK(static_cast<char*>(out[1].data) == static_cast<char*>(out[0].data) + 200);
    CHECK(out[2].block != nullptr && out[2].block != out[0].block);
    // A call that ends early, as after a failure, leaves b and d behind.
  }
  CHECK(live == (std::multiset<size_t>{64, 400}));
  for (int i = 0; i < 100; ++i) CHECK(static_cast<float*>(out[0].data)[i] == static_cast<float>(i));
  for (int i = 0; i < 50; ++i) CHECK(static_cast<float*>(out[1].data)[i] == static_cast<float>(i + 50));
  release(nullptr, out[0].block);
  release(nullptr, out[2].block);
  {
    // Many at once, in an order of their own.
    Call call(&arguments);
    Tensor* tensors[200];
    for (int i = 0; i < 200; ++i) {
      AOTPACK_PLACE(64 * i, 64, 64 * 200)
      tensors[i] = floats(call, 16);
      if (i % 3 == 2) call.drop(tensors[i - 1]);
    }
    CHECK(tensors[199]->data - tensors[0]->data == 64 * 199);
    CHECK(live.size() == 1);
  }
  CHECK(live.empty());
  {
    // A result in the place of what is read for the last time; any other one is not put there.
    Call call(&arguments);
    const int64_t count = 100;
    AOTPACK_PLACE(64, 400, 1024)
    Tensor* a = floats(call, 100);
    AOTPACK_PLACE(64, 400, 1024)
    CHECK(floats(call, 100)->data != a->data);
    AOTPACK_PLACE(64, 400, 1024)
    Tensor* b = call.empty_contiguous(1, &count, AOTPACK_DTYPE_FLOAT32, a);
    CHECK(b->data == a->data);
    call.drop(a);
    AOTPACK_PLACE(64, 400, 1024)
    CHECK(floats(call, 100)->data != b->data);
    const int64_t half = 50, one = 1;
    Tensor* view = call.view(b, 1, &half, &one, 50);
    AOTPACK_PLACE(264, 200, 1024)
    CHECK(call.empty_contiguous(1, &half, AOTPACK_DTYPE_FLOAT32, view)->data != view->data);
    AOTPACK_PLACE(64, 200, 1024)
    CHECK(call.empty_contiguous(1, &half, AOTPACK_DTYPE_FLOAT32, b)->data != b->data);
  }
  CHECK(live.empty());
  std::puts("done");
}
"""


def test_tensors_in_the_arena(tmp_path: Path) -> None:
    compiler = toolchain.find_compiler()
    (tmp_path / "main.cpp").write_text(_MAIN)
    includes = [flag for each in native_sources.include_folders() for flag in ("-I", str(each))]
    sources = ["main.cpp", *(str(native_sources.module_folder() / name) for name in ("tensor.cpp", "copy.cpp"))]
    flags = ["-std=c++20", "-O1", "-g", "-fopenmp", "-fsanitize=address,undefined", "-w", *includes]
    subprocess.run([*compiler.command, *flags, *sources, "-o", "main"], cwd=tmp_path, check=True)
    result = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


_CODE = """\
void run() {
    AtenTensorHandle buf0_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, a, b, f32, cpu, 0, &buf0_handle));
    RAIIAtenTensorHandle buf0(buf0_handle);  // aotpack {"makes": {"buf0": 400}}
    cpp_first((float*)(buf0.data_ptr()));
    // aotpack {"nodes": [], "operators": [], "makes": {"buf1": 100, "buf2": 64}}
    AtenTensorHandle buf1_handle;
    AtenTensorHandle buf2_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_second(buf0, &buf1_handle, &buf2_handle));
    RAIIAtenTensorHandle buf1(buf1_handle);
    RAIIAtenTensorHandle buf2(buf2_handle);
    buf0.reset();
    if (x) {
    AtenTensorHandle buf3_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, a, b, f32, cpu, 0, &buf3_handle));
    RAIIAtenTensorHandle buf3(buf3_handle);  // aotpack {"makes": {"buf3": 8}}
    cpp_third((float*)(buf3.data_ptr()), (float*)(buf1.data_ptr()));
    } else {
    AtenTensorHandle buf3_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, a, b, f32, cpu, 0, &buf3_handle));
    RAIIAtenTensorHandle buf3(buf3_handle);  // aotpack {"makes": {"buf3": 8}}
    cpp_fourth((float*)(buf3.data_ptr()));
    }
    buf1.reset();
    AtenTensorHandle buf4_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, a, b, f32, cpu, 0, &buf4_handle));
    RAIIAtenTensorHandle buf4(buf4_handle);  // aotpack {"makes": {"buf4": 8}}
    cpp_fifth((float*)(buf4.data_ptr()), (float*)(buf2.data_ptr()));
    output_handles[0] = buf2.release();
}
"""


def test_places_in_generated_code() -> None:
    assert "AOTPACK_PLACE" not in read_calls(_CODE, "void run").text
    calls = read_calls(_CODE, "void run", arena=True)
    # Neither the output, nor a name that stands for several blocks, nor what is not given back.
    assert dict(re.findall(r"(\w+)_handle; AOTPACK_PLACE\((.*)\)", calls.text)) == {
        "buf0": "0, 400, 576",
        "buf1": "448, 100, 576",
    }
    assert read_calls(_CODE, "void run").blocks == calls.blocks


def _conv(result: str, x: str, residual: str | None, nbytes: int = 640) -> str:
    added = "nullptr" if residual is None else f"&temporary_reference({residual}.get())"
    return f"""\
    // aotpack {{"nodes": [], "operators": [], "makes": {{"{result}": {nbytes}}}}}
    AtenTensorHandle {result}_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_packed_conv({x}, w, &temporary_reference(b.get()), {added}, 8L, \
std::array<int64_t, 2>{{1L, 1L}}.cbegin(), 2, 0, &{result}_handle));
    RAIIAtenTensorHandle {result}({result}_handle);
"""


def _gone(*names: str) -> str:
    return "".join(f"    {name}.reset();\n" for name in names)


def test_results_lie_where_residuals_did() -> None:
    """A chain of blocks; but not where x is the residual, or it is read later, or has another size."""
    code = "void run() {\n" + _conv("buf0", "arg0_1", None)
    code += _conv("buf1", "buf0", None) + _conv("buf2", "buf1", "buf0") + _gone("buf0", "buf1")
    code += _conv("buf3", "buf2", None) + _conv("buf4", "buf3", "buf2") + _gone("buf2", "buf3")
    code += _conv("buf5", "buf4", "buf4") + _gone("buf4")
    code += _conv("buf6", "arg1_1", "buf5") + _conv("buf7", "buf5", "buf6", 1280) + _gone("buf5", "buf6")
    code += _conv("buf8", "buf7", None) + _conv("buf9", "buf8", None) + _gone("buf7", "buf8")
    code += "    output_handles[0] = buf9.release();\n}\n"
    calls = read_calls(code, "void run", arena=True)
    places = {
        name: (int(offset), int(size))
        for name, offset, size in re.findall(r"(\w+)_handle; AOTPACK_PLACE\((\d+), (\d+), \d+\)", calls.text)
    }
    assert places["buf0"] == places["buf2"] == places["buf4"]
    assert places["buf5"] != places["buf4"]
    assert places["buf6"] != places["buf5"]
    first, *others = calls.blocks
    assert (first.name, first.first, first.last) == ("buf0", 0, 5)
    assert [block.name for block in others] == ["buf1", "buf3", "buf5", "buf6", "buf7", "buf8", "buf9"]


def _places(code: str) -> dict[str, tuple[int, int]]:
    """The offset and the size of each tensor that has a place in the arena, by its name."""
    text = read_calls(code, "void run", arena=True).text
    found = re.findall(r"(\w+)_handle; AOTPACK_PLACE\((\d+), (\d+), \d+\)", text)
    return {name: (int(offset), int(size)) for name, offset, size in found}


@pytest.mark.parametrize(
    "later",
    [
        "    auto buf2 = reinterpret_tensor_wrapper(buf0, 1, s, s, 0L); buf0.reset();\n",
        "    auto buf2 = std::move(buf0);  // reuse\n",
        "    cpp_fused_0((float*)(buf0.data_ptr()));\n    buf0.reset();\n",
    ],
    ids=["view", "moved", "written"],
)
def test_residuals_whose_memory_is_used_again_stay(later: str) -> None:
    begin = "void run() {\n" + _conv("buf0", "arg0_1", None) + _conv("buf1", "arg1_1", "buf0")
    end = _conv("buf3", "buf1", None) + _gone("buf1", "buf2") + _conv("buf4", "buf3", None) + _gone("buf3")
    end += "    output_handles[0] = buf4.release();\n}\n"
    places = _places(begin + _gone("buf0") + end)
    assert places["buf0"] == places["buf1"]
    places = _places(begin + later + end)
    assert places["buf0"] != places["buf1"]


def test_residuals_from_outside_of_a_loop_stay() -> None:
    """They are read again; those that the loop allocates are not."""
    code = "void run() {\n" + _conv("buf0", "arg0_1", None) + "    while (1) {\n"
    code += "    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out(buf0, &arg5_1_handle));\n"
    code += "    RAIIAtenTensorHandle arg5_1(arg5_1_handle);\n"
    code += _conv("buf1", "arg1_1", None) + _conv("buf2", "arg1_1", "buf1") + _gone("buf1")
    code += _conv("buf3", "buf2", "arg5_1") + _gone("buf2", "arg5_1") + _conv("buf4", "arg1_1", "buf0")
    code += _conv("buf5", "buf4", None) + _gone("buf4") + _conv("buf6", "buf5", "buf3") + _gone("buf3", "buf5")
    code += _conv("buf7", "buf6", None) + _gone("buf6", "buf7") + "    }\n" + _gone("buf0")
    code += _conv("buf8", "arg0_1", None) + "    output_handles[0] = buf8.release();\n}\n"
    places = _places(code)
    assert places["buf1"] == places["buf2"]
    assert places["buf3"] == places["buf6"]
    assert places["buf0"] not in (places["buf3"], places["buf4"])
