// driver.h: calls the operators of a module from Python's ctypes, outside of any module: a Call over malloc that counts
// its blocks. A library of operators includes it once and defines kOperators.
#pragma once

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "operators.h"
#include "shim.h"

using aotpack::module::Call;
using aotpack::module::Error;
using aotpack::module::Tensor;

namespace {

int64_t live_blocks = 0;

void* allocate(void*, size_t bytes) {
  const size_t rounded = (bytes + 127) & ~size_t{63};
  void* block = std::aligned_alloc(64, rounded);
  std::memset(block, 0xa5, rounded);  // what was not written shows
  ++live_blocks;
  return block;
}
void release(void*, void* block) {
  std::free(block);
  --live_blocks;
}
void fail(void*, int32_t, const char*, size_t) {}
uint64_t seed(void*) { return 1; }

struct Arguments {
  std::vector<Tensor*> tensors;  // null for none
  std::vector<int64_t> ints;
  double real;
  const char* text;

  AotpackTensor* optional(size_t i) { return i < tensors.size() && tensors[i] != nullptr ? &tensors[i] : nullptr; }
  std::vector<const AotpackTensor*> list(size_t first, size_t count) {
    std::vector<const AotpackTensor*> result;
    for (size_t i = first; i < first + count; ++i) result.push_back(optional(i));
    return result;
  }
};

using Results = std::vector<Tensor*>;
using Operator = void (*)(Arguments& a, Tensor** r);

struct Entry {
  int results;
  Operator call;
};

// A mutating operator hands its `out` back.
[[maybe_unused]] Tensor* again(Tensor* tensor) { return Call::current().retain(tensor); }

extern const std::map<std::string, Entry> kOperators;  // what the library defines

void* const kImports[] = {reinterpret_cast<void*>(allocate), reinterpret_cast<void*>(release),
                          reinterpret_cast<void*>(fail), reinterpret_cast<void*>(seed)};

}  // namespace

extern "C" {

// Runs one operator. A tensor whose dtype is negative stands for none. Returns the number of results, or -1 with
// `message` (message_size bytes) filled in. Blocks of the results go to driver_free.
int driver_run(const char* name, const aotpack_module_tensor* tensors, int tensor_count, const int64_t* ints,
               int int_count, double real, const char* text, int threads, aotpack_module_tensor* results, char* message,
               int message_size) {
  aotpack_module_call arguments{};
  arguments.struct_size = sizeof(arguments);
  arguments.imports = kImports;
  arguments.num_threads = threads;
  Call call(&arguments);
  try {
    Arguments a{{}, {ints, ints + int_count}, real, text};
    for (int i = 0; i < tensor_count; ++i)
      a.tensors.push_back(tensors[i].dtype < 0 ? nullptr : call.borrow(tensors[i]));
    const Entry& entry = kOperators.at(name);
    Tensor* r[4] = {};
    entry.call(a, r);
    call.give(r, static_cast<uint32_t>(entry.results), results);
    return entry.results;
  } catch (const Error& error) {
    std::strncpy(message, error.message().c_str(), static_cast<size_t>(message_size) - 1);
    return -1;
  }
}

void driver_free(void* block) { release(nullptr, block); }

int64_t driver_live_blocks() { return live_blocks; }
}
