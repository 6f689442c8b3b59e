// What operators of a module ask of a runtime, for tests that call them from Python's ctypes outside of any
// module: memory that is counted, each block as large as it must be and no larger. A library includes it once.
#pragma once

#include <cstdlib>
#include <cstring>

#include "operators.h"
#include "shim.h"
#include "tensor.h"

using aotpack::module::Call;
using aotpack::module::Error;
using aotpack::module::Tensor;

namespace {

int64_t live_blocks = 0;

void* allocate(void*, size_t bytes) {
  void* block = nullptr;
  if (posix_memalign(&block, 64, bytes) != 0) return nullptr;
  std::memset(block, 0xa5, bytes);  // what was not written shows
  ++live_blocks;
  return block;
}
void release(void*, void* block) {
  std::free(block);
  --live_blocks;
}
void fail(void*, int32_t, const char*, size_t) {}
uint64_t seed(void*) { return 1; }

void* const kImports[] = {reinterpret_cast<void*>(allocate), reinterpret_cast<void*>(release),
                          reinterpret_cast<void*>(fail), reinterpret_cast<void*>(seed)};

// body(call) inside a call of `threads` threads; -1, with `message` filled in, where an operator refuses.
template <class Body>
int in_call(int threads, char* message, int message_size, const Body& body) {
  aotpack_module_call arguments{};
  arguments.struct_size = sizeof(arguments);
  arguments.imports = kImports;
  arguments.num_threads = threads;
  Call call(&arguments);
  try {
    return body(call);
  } catch (const Error& error) {
    std::strncpy(message, error.message().c_str(), static_cast<size_t>(message_size) - 1);
    return -1;
  }
}

// Null where the dtype is negative, which stands for none.
[[maybe_unused]] Tensor* borrow(Call& call, const aotpack_module_tensor& given) {
  return given.dtype < 0 ? nullptr : call.borrow(given);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// For blocks of results.
void operators_release(void* block) { release(nullptr, block); }

int64_t operators_live_blocks() { return live_blocks; }
}
#pragma GCC visibility pop
